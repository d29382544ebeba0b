package container

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// A Command is what a container runs: Entrypoint instead of the image's ENTRYPOINT, and Cmd instead
// of its CMD. An empty list leaves the image's.
//
// It is stored as one text, which requests and answers call args, in one of two forms: words as a
// shell splits them, which are the Cmd (`--port 80`), or an object as JSON
// (`{"entrypoint":["sh"],"cmd":["-c","sleep 1"]}`).
type Command struct {
	Entrypoint, Cmd []string
}

// execForm is the second form. A nil list is absent.
type execForm struct {
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
}

// ParseCommand reads the stored form. An object with neither member is words like any other text,
// because it was before there were objects.
func ParseCommand(args string) (Command, error) {
	var members map[string]json.RawMessage
	if strings.HasPrefix(strings.TrimSpace(args), "{") && json.Unmarshal([]byte(args), &members) == nil &&
		(members["entrypoint"] != nil || members["cmd"] != nil) {
		return parseExecForm(args)
	}
	words, err := SplitArgs(args)
	return Command{Cmd: words}, err
}

func parseExecForm(args string) (Command, error) {
	dec := json.NewDecoder(strings.NewReader(args))
	dec.DisallowUnknownFields()
	var f execForm
	if dec.Decode(&f) != nil || strings.ContainsRune(strings.Join(slices.Concat(f.Entrypoint, f.Cmd), ""), 0) {
		return Command{}, errExecForm
	}
	return Command(f), nil
}

var errExecForm = errors.New("as an object it must have entrypoint and cmd only, which are lists of strings without NUL bytes")

// String returns the stored form as an object; empty for the command of the image.
func (c Command) String() string {
	if len(c.Entrypoint)+len(c.Cmd) == 0 {
		return ""
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)    // people read it
	_ = enc.Encode(execForm(c)) //nolint:errchkjson // two lists of strings
	return strings.TrimSuffix(b.String(), "\n")
}

// A CommandChange is what a request says of the command. A nil member is absent; an empty one takes
// the image's.
type CommandChange struct {
	Args            *string
	Entrypoint, Cmd []string
}

// IsZero reports whether the request says nothing of the command.
func (c CommandChange) IsZero() bool { return c.Args == nil && c.Entrypoint == nil && c.Cmd == nil }

// Or adds the command of a template: all of it for a request that says nothing of the command, and
// the other list for one that has one of the two.
func (c CommandChange) Or(template string) CommandChange {
	switch base, _ := ParseCommand(template); {
	case c.IsZero():
		c.Args = &template
	case c.Args != nil:
	case c.Entrypoint == nil:
		c.Entrypoint = base.Entrypoint
	case c.Cmd == nil:
		c.Cmd = base.Cmd
	}
	return c
}

// Apply returns what is stored after the change of what was. One list keeps the other one.
func (c CommandChange) Apply(was string) string {
	if c.Args != nil {
		return *c.Args
	}
	old, _ := ParseCommand(was)
	next := old
	if c.Entrypoint != nil {
		next.Entrypoint = c.Entrypoint
	}
	if c.Cmd != nil {
		next.Cmd = c.Cmd
	}
	if next.equal(old) {
		return was // as the user wrote it
	}
	return next.String()
}

func (c Command) equal(d Command) bool {
	return slices.Equal(c.Entrypoint, d.Entrypoint) && slices.Equal(c.Cmd, d.Cmd)
}

// Command requires args that ParseCommand can read, and lists that say the same as args, if both are
// there: a client may send back what it has read.
func (v Rules) Command(c CommandChange) {
	v.words("/entrypoint", c.Entrypoint)
	v.words("/cmd", c.Cmd)
	if c.Args == nil {
		return
	}
	said, err := ParseCommand(*c.Args)
	switch {
	case err != nil:
		v.Invalid("/args", "%v", err)
	case c.Entrypoint != nil && !slices.Equal(said.Entrypoint, c.Entrypoint):
		v.BadRequest("/args", "says another command than entrypoint")
	case c.Cmd != nil && !slices.Equal(said.Cmd, c.Cmd):
		v.BadRequest("/args", "says another command than cmd")
	}
}

func (v Rules) words(place string, list []string) {
	for i, s := range list {
		if strings.ContainsRune(s, 0) {
			v.Invalid(place+"/"+strconv.Itoa(i), "must have no NUL byte")
		}
	}
}
