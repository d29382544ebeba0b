package httpapi

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/podyard/podyard/pods/accounts"
)

func TestEveryOperationHasAHandlerAndAScopeThatExists(t *testing.T) {
	for _, o := range table() {
		if o.do == nil {
			t.Errorf("%s has no handler", o.Name)
		}
		if o.Scope == ScopeNone || o.Scope == ScopeAny || o.Scope == ScopeWorker || o.Scope == ScopeAccount {
			continue
		}
		need, err := accounts.ParseScope(string(o.Scope))
		if err != nil || need != o.need {
			t.Errorf("%s needs %v, want what scope %s is: %v, %v", o.Name, o.need, o.Scope, need, err)
		}
		if need.Endpoint != "" && (need.Endpoint != "{endpoint}" || !strings.Contains(o.Path, "{endpoint}")) {
			t.Errorf("%s has scope %s, and its path is %s", o.Name, o.Scope, o.Path)
		}
	}
}

// Only the table makes routes. One file alone registers handlers, with the patterns of the
// table and the pattern for everything else.
func TestRoutesAreRegisteredInTheRouterOnly(t *testing.T) {
	var found []string
	files := token.NewFileSet()
	names, err := fs.Glob(os.DirFS("."), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(files, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && (sel.Sel.Name == "HandleFunc" || sel.Sel.Name == "Handle") {
				found = append(found, name)
			}
			return true
		})
	}
	if got := strings.Join(found, " "); got != "router.go router.go" {
		t.Errorf("handlers are registered in %s, want two places of router.go", got)
	}
}
