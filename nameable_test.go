package podyard_test

import (
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"strconv"
	"strings"
	"testing"
)

// A caller who keeps a value in a variable of its own, or passes it on, writes the name of its type.
func TestTypesOfFieldsAndResultsHaveNamesForCallers(t *testing.T) {
	fset := token.NewFileSet()
	for _, s := range sources(t, fset) {
		pkg := path.Dir(s.path)
		if strings.HasPrefix(pkg, "examples/") || strings.HasPrefix(s.path, ".") || strings.Contains("/"+pkg+"/", "/internal/") || s.file.Name.Name == "main" {
			continue
		}
		internal := map[string]bool{}
		for _, i := range s.file.Imports {
			if p, err := strconv.Unquote(i.Path.Value); err == nil && strings.Contains(p, "/internal/") {
				name := path.Base(p)
				if i.Name != nil {
					name = i.Name.Name
				}
				internal[name] = true
			}
		}
		var nameless func(where string, of ast.Expr)
		nameless = func(where string, of ast.Expr) {
			ast.Inspect(of, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.StructType, *ast.InterfaceType:
					return false
				case *ast.Field:
					nameless(where, n.Type) // and not its names
					return false
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && internal[x.Name] {
						t.Errorf("%s: %s has the type %s.%s, which no caller can name", fset.Position(n.Pos()), where, x.Name, n.Sel.Name)
					}
					return false
				case *ast.Ident:
					if !n.IsExported() && types.Universe.Lookup(n.Name) == nil {
						t.Errorf("%s: %s has the type %s, which no caller can name", fset.Position(n.Pos()), where, n.Name)
					}
				}
				return true
			})
		}
		for _, d := range s.file.Decls {
			namelessIn(d, nameless)
		}
	}
}

// namelessIn calls f with the types of exported fields, and of the results of exported functions.
func namelessIn(d ast.Decl, f func(where string, of ast.Expr)) {
	if fn, ok := d.(*ast.FuncDecl); ok {
		if !fn.Name.IsExported() || fn.Type.Results == nil || fn.Type.TypeParams != nil {
			return
		}
		if fn.Recv != nil && !ast.IsExported(receiver(fn.Recv.List[0].Type)) {
			return
		}
		for _, r := range fn.Type.Results.List {
			f("a result of "+fn.Name.Name, r.Type)
		}
		return
	}
	g, ok := d.(*ast.GenDecl)
	if !ok {
		return
	}
	for _, s := range g.Specs {
		ts, ok := s.(*ast.TypeSpec)
		if !ok || !ts.Name.IsExported() || ts.TypeParams != nil {
			continue
		}
		st, ok := ts.Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, field := range st.Fields.List {
			for _, n := range field.Names {
				if n.IsExported() {
					f(ts.Name.Name+"."+n.Name, field.Type)
				}
			}
		}
	}
}
