package httpapi_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/httpapi"
)

// TestThePageHasEveryOperation compares docs/interface.md with the table of operations:
// methods, paths, scopes, and what is not offered.
func TestThePageHasEveryOperation(t *testing.T) {
	b, err := os.ReadFile("../docs/interface.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	want := map[string]string{} // scope by method and path
	for _, o := range httpapi.Operations() {
		path := strings.NewReplacer("{route...}", "...", "{path...}", "...").Replace(o.Path)
		if o.NotOffered != "" {
			if !strings.Contains(page, "`"+path+"`") {
				t.Errorf("the page does not say that %s is not offered", path)
			}
			continue
		}
		for _, m := range o.Methods {
			want[m+" "+path] = scopeOnPage(o)
		}
	}
	if diff := cmp.Diff(want, operationsOnPage(page)); diff != "" {
		t.Errorf("operations and scopes of the page (-table +page):\n%s", diff)
	}
}

func scopeOnPage(o httpapi.Operation) string {
	switch o.Scope {
	case httpapi.ScopeNone:
		return "no key"
	case httpapi.ScopeAny:
		return "any valid key"
	case httpapi.ScopeAccount:
		return "`*` or `operator`"
	case httpapi.ScopeWorker:
		return "" // every operation has it; the page says it once
	}
	return "`" + strings.Replace(string(o.Scope), "{endpoint}", "<id>", 1) + "`"
}

var (
	bothMethods = regexp.MustCompile("`(GET)` or `POST (/v2[^`? ]+)[^`]*`")
	onPage      = regexp.MustCompile("`(GET|POST|PUT|PATCH|DELETE|OPTIONS) (/(?:v[12]|lb)/[^`? ]+)[^`]*`")
)

// operationsOnPage returns the operations in the first cell of each row, with the scope in
// the third cell.
func operationsOnPage(page string) map[string]string {
	list := map[string]string{}
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cells, scope := strings.Split(strings.TrimSpace(line), " | "), ""
		if len(cells) > 2 {
			scope = strings.TrimSuffix(cells[2], " |")
		}
		for _, m := range slices.Concat(bothMethods.FindAllStringSubmatch(cells[0], -1), onPage.FindAllStringSubmatch(cells[0], -1)) {
			list[m[1]+" "+m[2]] = scope
		}
	}
	return list
}
