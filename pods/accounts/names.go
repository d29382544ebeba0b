package accounts

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// CheckUser returns an error for what cannot be the name of a new user. An operator decides by the
// name whose keys to revoke and whose records to purge, and other programs compare it. So no two names
// look the same, and each can be a part of a path: "alice " and "alice", or "аlice" with a Cyrillic
// letter, would be two users.
//
// Names that are older than these rules go on: see Service.Create.
func CheckUser(name string) error {
	if err := checkKnown(name); err != nil {
		return err
	}
	switch {
	case name == "." || name == ".." || strings.Contains(name, "/"):
		return errors.New(`must be a part of a path: it has no "/", and is not "." or ".."`)
	case strings.HasPrefix(name, " ") || strings.HasSuffix(name, " ") || strings.Contains(name, "  "):
		return errors.New("must not begin or end with a blank, or have two together")
	}
	if i := strings.IndexFunc(name, isUnseen); i >= 0 {
		r, _ := utf8.DecodeRuneInString(name[i:])
		return fmt.Errorf("must not have the character %U: it cannot be seen, or changes how others are seen", r)
	}
	if r, _ := utf8.DecodeRuneInString(name); unicode.IsMark(r) {
		return fmt.Errorf("must not begin with the mark %U: it is shown as a part of what is before it", r)
	}
	if plain := norm.NFKC.String(name); plain != name {
		return fmt.Errorf("must be in the normal form NFKC of Unicode: write %+q for %+q", plain, name)
	}
	return checkScripts(name)
}

// checkKnown returns an error for what cannot be the name of a user that is there already.
func checkKnown(name string) error {
	if name == "" || name == AllUsers || len(name) > MaxUser || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return fmt.Errorf("must be the name of a user, with at most %d bytes and without control characters", MaxUser)
	}
	return nil
}

// isUnseen reports whether r has no look of its own: blanks other than the plain one, characters that
// format text or change its direction, and those that are shown as nothing.
func isUnseen(r rune) bool {
	const brailleBlank = '\u2800'
	return !unicode.IsPrint(r) || r == brailleBlank || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// lookalikes are the scripts whose letters look like those of one another. Only within one name they
// can be told apart: a name that is Cyrillic as a whole may look like a Latin one.
var lookalikes = [...]struct {
	name  string
	table *unicode.RangeTable
}{{"Latin", unicode.Latin}, {"Cyrillic", unicode.Cyrillic}, {"Greek", unicode.Greek}}

// checkScripts returns an error for a name with letters of two scripts that look alike.
func checkScripts(name string) error {
	first := ""
	for _, s := range lookalikes {
		if !strings.ContainsFunc(name, func(r rune) bool { return unicode.Is(s.table, r) }) {
			continue
		}
		if first != "" {
			return fmt.Errorf("must not mix %s and %s letters: some of them look the same", first, s.name)
		}
		first = s.name
	}
	return nil
}
