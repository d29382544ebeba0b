package podyard_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A source is one file of the module: no test, and no suite of tests.
type source struct {
	path string
	file *ast.File
}

// suites matches files below a directory of a suite.
var suites = regexp.MustCompile(`(^|/)([^/]*test|suite)/`)

// sources parses the module. Packages whose names end in test, and internal/suite, are
// suites.
func sources(t *testing.T, fset *token.FileSet) (list []source) {
	t.Helper()
	for _, path := range files(t, ".go") {
		if strings.HasSuffix(path, "_test.go") || suites.MatchString(path) {
			continue
		}
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, source{path, file})
	}
	return list
}

// isTable reports whether a function does nothing but return a literal: it is as long as
// what it lists.
func isTable(f *ast.FuncDecl) bool {
	if len(f.Body.List) != 1 {
		return false
	}
	r, ok := f.Body.List[0].(*ast.ReturnStmt)
	if !ok || len(r.Results) != 1 {
		return false
	}
	_, literal := r.Results[0].(*ast.CompositeLit)
	return literal
}

// What is long is read last. A function has the lines from its first to its closing brace.
func TestFunctionsAreShort(t *testing.T) {
	const median, most, share = 9, 50, 0.99
	fset := token.NewFileSet()
	var lengths []int
	long := map[string]int{}
	for _, s := range sources(t, fset) {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil || isTable(f) {
				continue
			}
			n := fset.Position(f.End()).Line - fset.Position(f.Pos()).Line + 1
			lengths = append(lengths, n)
			if n > most {
				long[s.path+": "+f.Name.Name] = n
			}
		}
	}
	slices.Sort(lengths)
	half, nearly := lengths[len(lengths)/2], lengths[int(share*float64(len(lengths)-1))]
	t.Logf("%d functions: median %d lines, 99th percentile %d", len(lengths), half, nearly)
	if half > median || nearly > most {
		t.Errorf("of %d functions the median has %d lines, want at most %d; the 99th percentile %d, want at most %d",
			len(lengths), half, median, nearly, most)
		for _, name := range slices.Sorted(maps.Keys(long)) {
			t.Logf("%d lines: %s", long[name], name)
		}
	}
}

// The example server shows how a program uses the library: what it wires belongs into
// httpapi/server and httpapi/server/config.
func TestTheMainPackageOfTheServerIsShort(t *testing.T) {
	const most = 400
	fset := token.NewFileSet()
	lines := 0
	for _, s := range sources(t, fset) {
		if filepath.ToSlash(filepath.Dir(s.path)) == "examples/server" {
			lines += fset.File(s.file.Pos()).LineCount()
		}
	}
	if lines == 0 || lines > most {
		t.Errorf("examples/server has %d lines, want 1 to %d", lines, most)
	}
}

// Booleans that change after a value was made are a state in disguise: of n of them there
// are 2^n states, and most make no sense. Four or more ask for one named state. A field is
// one of state if it is not exported and its package assigns to one of its name: what others
// fill in, as the body of a request, is data.
func TestNoTypeHasMoreThanThreeBooleansOfState(t *testing.T) {
	const most = 3
	fset := token.NewFileSet()
	fields := map[string]map[string][]string{} // by directory and type
	changed := map[string]map[string]bool{}    // by directory: names of fields that are assigned
	for _, s := range sources(t, fset) {
		dir := filepath.Dir(s.path)
		if fields[dir] == nil {
			fields[dir], changed[dir] = map[string][]string{}, map[string]bool{}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				fields[dir][n.Name.Name] = booleans(n)
			case *ast.AssignStmt:
				for _, l := range n.Lhs {
					if sel, ok := l.(*ast.SelectorExpr); ok {
						changed[dir][sel.Sel.Name] = true
					}
				}
			}
			return true
		})
	}
	for dir, types := range fields {
		for name, all := range types {
			state := slices.DeleteFunc(all, func(f string) bool { return !changed[dir][f] })
			if len(state) > most {
				t.Errorf("%s: type %s has %d booleans that change, %v, want at most %d", dir, name, len(state), state, most)
			}
		}
	}
}

// booleans are the unexported fields of a struct whose type is bool.
func booleans(s *ast.TypeSpec) (names []string) {
	st, ok := s.Type.(*ast.StructType)
	if !ok {
		return nil
	}
	for _, f := range st.Fields.List {
		if id, ok := f.Type.(*ast.Ident); ok && id.Name == "bool" {
			for _, n := range f.Names {
				if !n.IsExported() {
					names = append(names, n.Name)
				}
			}
		}
	}
	return names
}
