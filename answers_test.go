package podyard_test

import (
	"go/ast"
	"testing"
)

// An answer has the size that who answers wants: a worker, a receiver of webhooks, or whoever listens at the
// address. net/http takes heads of 10 MB, and whoever asks must say that it wants less.
func TestWhoeverAsksOverHTTPBoundsTheHeadsOfAnswers(t *testing.T) {
	fset, sources := parse(t)
	asks := 0
	for _, s := range sources {
		for _, d := range s.file.Decls {
			transport, bounded := false, false
			ast.Inspect(d, func(n ast.Node) bool {
				switch x := n.(type) {
				case *ast.CompositeLit:
					transport = transport || isSelector(x.Type, "http", "Transport")
					if isSelector(x.Type, "http", "Client") && !sets(x, "Transport") {
						t.Errorf("%s: a http.Client without a Transport uses http.DefaultTransport, which takes heads of 10 MB", fset.Position(x.Pos()))
					}
					if isSelector(x.Type, "http", "Transport") && sets(x, "MaxResponseHeaderBytes") {
						bounded = true
					}
				case *ast.SelectorExpr:
					transport = transport || isSelector(x, "http", "DefaultTransport")
					if isSelector(x, "http", "DefaultClient") || isSelector(x, "http", "Get") || isSelector(x, "http", "Post") {
						t.Errorf("%s: http.%s takes heads of 10 MB: use a transport with MaxResponseHeaderBytes", fset.Position(x.Pos()), x.Sel.Name)
					}
					bounded = bounded || x.Sel.Name == "MaxResponseHeaderBytes"
				}
				return true
			})
			if transport {
				asks++
			}
			if transport && !bounded {
				t.Errorf("%s: a http.Transport without MaxResponseHeaderBytes takes heads of 10 MB", fset.Position(d.Pos()))
			}
		}
	}
	if asks < 8 {
		t.Errorf("%d places make a transport: this test does not find them", asks)
	}
}

func sets(x *ast.CompositeLit, field string) bool {
	for _, e := range x.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if id, ok := kv.Key.(*ast.Ident); ok && id.Name == field {
				return true
			}
		}
	}
	return false
}

// A body that is read whole is as large as its sender wants, unless the reader says where it ends.
func TestNoBodyIsReadWholeWithoutABound(t *testing.T) {
	fset, sources := parse(t)
	for _, s := range sources {
		if s.name == "httpapi/double/inbox.go" { // the test double receives what its own test sends
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 || !isSelector(call.Fun, "io", "ReadAll") && !isSelector(call.Fun, "json", "NewDecoder") {
				return true
			}
			if body, ok := call.Args[0].(*ast.SelectorExpr); ok && body.Sel.Name == "Body" {
				t.Errorf("%s: this reads as much as is sent: give it an io.LimitReader or a http.MaxBytesReader", fset.Position(call.Pos()))
			}
			return true
		})
	}
}
