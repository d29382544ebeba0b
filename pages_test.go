package podyard_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

// files are the paths of the files with an ending, in the whole repository and without those of
// tests' data. They are the files that git knows: what else lies in a checkout, such as a store
// that an example has left, or the files of its user, is none of ours. In an archive without
// git all files count.
func files(t *testing.T, ending string) (list []string) {
	t.Helper()
	keep := func(path string) {
		path = filepath.ToSlash(path)
		if strings.HasSuffix(path, ending) && !strings.Contains("/"+path, "/testdata/") {
			list = append(list, path)
		}
	}
	// A cached result of the test ends with a change of a directory only if the test has read
	// the directory itself.
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "node_modules" || len(name) > 1 && name[0] == '.'):
			return fs.SkipDir
		case !d.IsDir():
			keep(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	known, err := exec.CommandContext(t.Context(), "git", "ls-files", "-z").Output()
	if err != nil || len(known) == 0 {
		return list
	}
	ours := map[string]bool{}
	for path := range strings.SplitSeq(string(known), "\x00") {
		ours[path] = true
	}
	return slices.DeleteFunc(list, func(path string) bool { return !ours[path] })
}

func text(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var (
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	heading = regexp.MustCompile(`(?m)^(#+) +(.*)$`)
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
)

// headings are the texts of a page's headings.
func headings(page string) (list []string) {
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		list = append(list, m[2])
	}
	return list
}

// anchor is what a heading is called in a link.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ' || r == '-':
			return '-'
		case r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

func TestLinksOfThePagesLead(t *testing.T) {
	found := 0
	for _, path := range files(t, ".md") {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(text(t, path), ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			found++
			if err := leads(t, path, m[1]); err != nil {
				t.Errorf("%s: link to %s: %v", path, m[1], err)
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d links were found", found)
	}
}

// leads is nil for a link of a page to a file or directory that is there, with a heading of
// that name if the link names one.
func leads(t *testing.T, page, to string) error {
	file, name, _ := strings.Cut(to, "#")
	target := page
	if file != "" {
		target = filepath.Join(filepath.Dir(page), file)
	}
	if _, err := os.Stat(target); err != nil {
		return err
	}
	if name == "" {
		return nil
	}
	if !slices.ContainsFunc(headings(text(t, target)), func(h string) bool { return anchor(h) == name }) {
		return fmt.Errorf("%s has no such heading", target)
	}
	return nil
}

// numbered are the numbers of a page's headings: "4.2" of "4.2 Jobs API".
func numbered(t *testing.T, path string) map[string]bool {
	t.Helper()
	list := map[string]bool{}
	for _, h := range headings(text(t, path)) {
		if n := regexp.MustCompile(`^\d+(\.\d+)?`).FindString(h); n != "" {
			list[n] = true
		}
	}
	return list
}

const numbers = `\d+(?:\.\d+)?(?:(?:, | and | to |, and )\d+(?:\.\d+)?)*`

// A citation names sections or decisions by their numbers.
type citation struct{ page, numbers string }

var (
	cited = regexp.MustCompile(`docs/(interface|decisions)\.md (` + numbers + `)\b`)
	// In the pages themselves decisions and sections have no path before them.
	spoken = regexp.MustCompile(`\b([Dd]ecisions?|[Ss]ections?) (` + numbers + `)\b`)
)

func citations(s string) (list []citation) {
	for _, m := range cited.FindAllStringSubmatch(s, -1) {
		list = append(list, citation{"docs/" + m[1] + ".md", m[2]})
	}
	return list
}

// comments are those of a file, each in one line.
func comments(t *testing.T, path string) (list []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range f.Comments {
		list = append(list, strings.Join(strings.Fields(commentText(c)), " "))
	}
	return list
}

func commentText(g *ast.CommentGroup) string {
	var b strings.Builder
	for _, c := range g.List {
		b.WriteString(strings.TrimPrefix(c.Text, "//"))
		b.WriteString(" ")
	}
	return b.String()
}

// Whoever reads "docs/decisions.md 28" in a comment finds a heading with that number.
func TestCitationsLead(t *testing.T) {
	known := map[string]map[string]bool{}
	for _, page := range []string{"docs/interface.md", "docs/decisions.md"} {
		known[page] = numbered(t, page)
	}
	found := 0
	check := func(where string, list []citation) {
		for _, c := range list {
			for _, n := range regexp.MustCompile(`\d+(?:\.\d+)?`).FindAllString(c.numbers, -1) {
				found++
				if !known[c.page][n] {
					t.Errorf("%s cites %s of %s, which has no heading with that number", where, n, c.page)
				}
			}
		}
	}
	for _, path := range files(t, ".go") {
		for _, c := range comments(t, path) {
			check(path, citations(c))
			if path != "pages_test.go" && spoken.MatchString(c) {
				t.Errorf("%s says %q: name the page, as in docs/interface.md 4.2", path, spoken.FindString(c))
			}
		}
	}
	for _, path := range files(t, ".md") {
		page := strings.Join(strings.Fields(text(t, path)), " ")
		check(path, citations(page))
		if strings.HasPrefix(path, "docs/") {
			check(path, spokenOf(page))
		}
	}
	if found < 100 {
		t.Errorf("only %d citations were found", found)
	}
}

// spokenOf are the citations of a page that name a decision or section without a path.
func spokenOf(page string) (list []citation) {
	for _, m := range spoken.FindAllStringSubmatch(page, -1) {
		to := "docs/interface.md"
		if m[1][0]|0x20 == 'd' {
			to = "docs/decisions.md"
		}
		list = append(list, citation{to, m[2]})
	}
	return list
}

// The page has every module that go.mod requires directly, and no other.
func TestThePageHasEveryDependency(t *testing.T) {
	_, page, _ := strings.Cut(text(t, "docs/architecture.md"), "\n## Dependencies\n")
	page, _, _ = strings.Cut(page, "\n## ")
	var have, want []string
	for _, m := range regexp.MustCompile("`([a-z]+\\.[a-z]+[^`]*/[^`]*)`").FindAllStringSubmatch(page, -1) {
		have = append(have, m[1])
	}
	block, _, _ := strings.Cut(text(t, "go.mod"), "\n)")
	for line := range strings.Lines(block) {
		if f := strings.Fields(line); len(f) == 2 && strings.Contains(f[0], "/") && f[0] != "module" {
			want = append(want, f[0])
		}
	}
	slices.Sort(have)
	slices.Sort(want)
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("modules of the page (-go.mod +page):\n%s", diff)
	}
}

// The page has every package that other programs can import.
func TestThePageHasEveryPackage(t *testing.T) {
	_, page, _ := strings.Cut(text(t, "docs/architecture.md"), "\n## Packages\n")
	page, _, _ = strings.Cut(page, "\n## ")
	for _, path := range files(t, ".go") {
		dir := filepath.ToSlash(filepath.Dir(path))
		if dir == "." || strings.HasPrefix(dir, "internal/") || strings.HasPrefix(dir, "examples/") {
			continue
		}
		if !strings.Contains(page, "`"+dir+"`") && !strings.Contains(page, "`"+filepath.Base(dir)+"`") {
			t.Errorf("the page has no row for %s", dir)
		}
	}
}

// exportedNames are the exported names of the packages of this module, by the name of the
// package: types, functions, values, and methods and fields as Type.Name. Those of types
// without a package are under "".
func exportedNames(t *testing.T) map[string]map[string]bool {
	t.Helper()
	names := map[string]map[string]bool{"": {}}
	for _, path := range files(t, ".go") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		pkg := f.Name.Name
		if names[pkg] == nil {
			names[pkg] = map[string]bool{}
		}
		for _, d := range f.Decls {
			for _, n := range declared(d) {
				names[pkg][n] = true
				names[""][n] = true
			}
		}
	}
	return names
}

func declared(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return []string{d.Name.Name}
		}
		typ := d.Recv.List[0].Type
		if p, ok := typ.(*ast.StarExpr); ok {
			typ = p.X
		}
		if id, ok := typ.(*ast.Ident); ok {
			return []string{id.Name + "." + d.Name.Name}
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				for _, n := range s.Names {
					names = append(names, n.Name)
				}
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
				for _, m := range members(s.Type) {
					names = append(names, s.Name.Name+"."+m)
				}
			}
		}
	}
	return names
}

// members are the fields of a struct or the methods of an interface, with those that are embedded by
// their type.
func members(typ ast.Expr) (names []string) {
	var list *ast.FieldList
	switch typ := typ.(type) {
	case *ast.StructType:
		list = typ.Fields
	case *ast.InterfaceType:
		list = typ.Methods
	default:
		return nil
	}
	for _, f := range list.List {
		for _, n := range f.Names {
			names = append(names, n.Name)
		}
		if len(f.Names) == 0 {
			names = append(names, receiver(f.Type))
		}
	}
	return names
}

// A name of Go in a page, such as `pods.Runtime`, `State.Apply` or `pods/store.go`, is one
// that is there.
func TestThePagesNameWhatExists(t *testing.T) {
	names, found := exportedNames(t), 0
	qualified := regexp.MustCompile(`^(?:([a-z]+)\.)?([A-Z]\w*(?:\.[A-Z]\w*)?)(?:\(.*\))?$`)
	file := regexp.MustCompile(`^[a-z]\w*(?:/[\w.]+)+(?:\.go)?$`)
	for _, path := range files(t, ".md") {
		if path == "CHANGELOG.md" { // older names are right there
			continue
		}
		for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(fence.ReplaceAllString(text(t, path), ""), -1) {
			if q := qualified.FindStringSubmatch(m[1]); q != nil && (names[q[1]] != nil && q[1] != "" || strings.Contains(q[2], ".")) {
				found++
				if !names[q[1]][q[2]] {
					t.Errorf("%s names %s, which does not exist", path, m[1])
				}
			}
			if top, _, _ := strings.Cut(m[1], "/"); file.MatchString(m[1]) && isDir(top) {
				found++
				if _, err := os.Stat(m[1]); err != nil {
					t.Errorf("%s names %s: %v", path, m[1], err)
				}
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d names were found", found)
	}
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// A comment that names something exported of a package of ours, as pods.Runtime, names what is
// there. Where the file imports a foreign package of that name, it is not ours that is meant. The
// calls of package fault have the names that its plans give them.
func TestTheCommentsNameWhatExists(t *testing.T) {
	names, found := exportedNames(t), 0
	methods := map[string]bool{}
	for name := range names[""] {
		if _, method, ok := strings.Cut(name, "."); ok {
			methods[method] = true
		}
	}
	qualified := regexp.MustCompile(`(?:^|[\s(])([a-z]+)\.([A-Z]\w*(?:\.[A-Z]\w*)?)`)
	for _, path := range files(t, ".go") {
		foreign := foreignImports(t, path)
		for _, c := range comments(t, path) {
			for _, m := range qualified.FindAllStringSubmatch(c, -1) {
				if names[m[1]] == nil || foreign[m[1]] || strings.HasPrefix(path, "backend/fault/") && methods[m[2]] {
					continue
				}
				found++
				if !names[m[1]][m[2]] {
					t.Errorf("%s names %s.%s, which does not exist", path, m[1], m[2])
				}
			}
		}
	}
	if found < 500 {
		t.Errorf("only %d names were found", found)
	}
}

// foreignImports are the last parts of the paths that a file imports of others.
func foreignImports(t *testing.T, path string) map[string]bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, spec := range f.Imports {
		if imported := strings.Trim(spec.Path.Value, `"`); !strings.HasPrefix(imported, module) {
			all[imported[strings.LastIndex(imported, "/")+1:]] = true
		}
	}
	return all
}
