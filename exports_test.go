package podyard_test

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/exports.txt")

// exports are the exported names of the packages that other modules import, a line each: a
// package, a name, and the exported fields and methods of a type.
func exports(t *testing.T) string {
	t.Helper()
	names := map[string]map[string]bool{} // members by "package name"
	add := func(pkg, name, member string) {
		if !ast.IsExported(name) {
			return
		}
		if names[pkg+" "+name] == nil {
			names[pkg+" "+name] = map[string]bool{}
		}
		if ast.IsExported(member) {
			names[pkg+" "+name][member] = true
		}
	}
	for _, file := range files(t, ".go") {
		pkg := path.Dir(file)
		if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "examples/") || strings.HasPrefix(file, ".") || strings.Contains("/"+pkg+"/", "/internal/") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if f.Name.Name == "main" {
			continue
		}
		for _, d := range f.Decls {
			exportsOf(d, func(name, member string) { add(pkg, name, member) })
		}
	}
	var list strings.Builder
	for _, name := range slices.Sorted(maps.Keys(names)) {
		list.WriteString(strings.Join(append([]string{name}, slices.Sorted(maps.Keys(names[name]))...), " ") + "\n")
	}
	return list.String()
}

func exportsOf(d ast.Decl, add func(name, member string)) {
	if f, ok := d.(*ast.FuncDecl); ok {
		if f.Recv == nil {
			add(f.Name.Name, "")
		} else if of := receiver(f.Recv.List[0].Type); ast.IsExported(f.Name.Name) {
			add(of, f.Name.Name)
		}
		return
	}
	g, ok := d.(*ast.GenDecl)
	if !ok {
		return
	}
	for _, s := range g.Specs {
		switch s := s.(type) {
		case *ast.ValueSpec:
			for _, n := range s.Names {
				add(n.Name, "")
			}
		case *ast.TypeSpec:
			add(s.Name.Name, "")
			for _, member := range members(s.Type) {
				add(s.Name.Name, member)
			}
		}
	}
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// Who changes a name that other modules may use sees it here, and says in CHANGELOG.md how to
// follow.
func TestExportedNamesAreThoseOfTheList(t *testing.T) {
	const file = "docs/exports.txt"
	now := exports(t)
	if *update {
		write(t, file, now)
	}
	if diff := cmp.Diff(strings.Split(read(t, file), "\n"), strings.Split(now, "\n")); diff != "" {
		t.Errorf("exported names differ from %s (-file +code). Say in CHANGELOG.md how programs follow, then run \"go test . -run Exported -update\":\n%s", file, diff)
	}
}
