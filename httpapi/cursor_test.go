package httpapi_test

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/httpapi"
)

// pagedLists are the paged lists by operation: the creation of a record, and the member of
// the answer that has the list.
var pagedLists = map[string]struct{ create, member string }{
	"listPods":           {"createPod", "pods"},
	"listClusters":       {"createCluster", "clusters"},
	"listNetworkVolumes": {"createNetworkVolume", "networkVolumes"},
	"listTemplates":      {"createTemplate", "templates"},
	"listKeys":           {"createKey", "keys"},
	"listRegistries":     {"createRegistry", "registries"},
	"listEndpoints":      {"createEndpoint", "endpoints"},
}

// idsOf returns the ids of a list, also of one whose items have their owners.
func idsOf(t testing.TB, a answer, member string) (ids []string) {
	t.Helper()
	var body map[string]json.RawMessage
	var list []struct {
		ID   string
		Item struct{ ID string }
	}
	if err := json.Unmarshal([]byte(a.body), &body); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body[member], &list); err != nil {
		t.Fatal(err)
	}
	for _, v := range list {
		ids = append(ids, v.ID+v.Item.ID)
	}
	return ids
}

// allPages reads a list page after page. between is called after each page.
func (w *testAPI) allPages(t *testing.T, path, member, key string, between func(ids []string)) (ids []string, sizes []int) {
	t.Helper()
	list, _, _ := strings.Cut(path, "?")
	for path != "" {
		a := w.want(200, "GET", path, "", key)
		page := idsOf(t, a, member)
		ids, sizes = append(ids, page...), append(sizes, len(page))
		path = nextPage(t, list, a)
		checkPagination(t, path, a)
		if path != "" && between != nil {
			between(page)
		}
	}
	return ids, sizes
}

// checkPagination compares the member pagination, where a list has it, with the link to the next page.
func checkPagination(t *testing.T, next string, a answer) {
	t.Helper()
	var body struct {
		Pagination *struct {
			NextCursor  *string
			HasNextPage *bool
		}
	}
	if err := json.Unmarshal([]byte(a.body), &body); err != nil {
		t.Fatal(err)
	}
	p := body.Pagination
	if p == nil {
		return // registries and keys have none
	}
	u, err := url.Parse(next)
	if err != nil {
		t.Fatal(err)
	}
	if p.HasNextPage == nil || *p.HasNextPage != (next != "") || (p.NextCursor == nil) != (next == "") || next != "" && *p.NextCursor != u.Query().Get("cursor") {
		t.Errorf("the body has the pagination %+v, and the next page is %q", p, next)
	}
}

// eachList runs f for each paged list, of which admin has seven records. Some are of one
// instant.
func eachList(t *testing.T, f func(t *testing.T, w *testAPI, path, member string, c creation)) {
	t.Helper()
	for _, o := range httpapi.Operations() {
		if !o.Paged {
			continue
		}
		list, ok := pagedLists[o.Name]
		if !ok {
			if !slices.Contains([]string{"listEndpointReleases", "listEndpointBuilds", "listGlobalVolumes"}, o.Name) { // which are no lists of what is created
				t.Errorf("%s has pages, and no test", o.Name)
			}
			continue
		}
		c := creations[slices.IndexFunc(creations, func(c creation) bool { return c.name == list.create })]
		t.Run(o.Name, func(t *testing.T) {
			bubble(t, func(w *testAPI) {
				for i := range 7 {
					if i%3 == 0 {
						advance(time.Millisecond)
					}
					w.want(201, "POST", c.path, c.body, asAdmin)
				}
				f(t, w, o.Path, list.member, c)
			})
		})
	}
}

// A list of the control API with owners of all users can grow, so it has pages. Those of jobs have
// pages of their own, and that of secrets is whole in the public API.
func TestListsThatCanGrowHavePages(t *testing.T) {
	whole := []string{"listEndpointJobs", "listWebhooks", "listLimits", "listSecrets"}
	public := []string{"listEndpointReleases", "listEndpointBuilds", "listGlobalVolumes"}
	for _, o := range httpapi.Operations() {
		if grows := o.API == httpapi.APIControl && o.Owners == httpapi.OwnersAll && !slices.Contains(whole, o.Name) || slices.Contains(public, o.Name); o.Paged != grows {
			t.Errorf("%s: Paged is %t, want %t", o.Name, o.Paged, grows)
		}
	}
}

func TestPagesHaveEveryRecordOnceAndInOrder(t *testing.T) {
	eachList(t, func(t *testing.T, w *testAPI, path, member string, _ creation) {
		whole := w.want(200, "GET", path, "", asAdmin)
		want := idsOf(t, whole, member)
		if len(want) < 7 || whole.header.Get("Link") != "" {
			t.Fatalf("without limit: %d records and Link %q, want all of them and none", len(want), whole.header.Get("Link"))
		}
		for _, limit := range []string{"1", "3", "1000"} {
			got, sizes := w.allPages(t, path+"?limit="+limit, member, asAdmin, nil)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("pages of %s, %v (-whole +pages):\n%s", limit, sizes, diff)
			}
		}
		all := w.want(200, "GET", path+"?owner=*", "", asRoot)
		got, _ := w.allPages(t, path+"?limit=2&owner=*", member, asRoot, nil)
		if diff := cmp.Diff(idsOf(t, all, member), got); diff != "" {
			t.Errorf("pages of all owners (-whole +pages):\n%s", diff)
		}
	})
}

func TestAPageOfLargeRecordsEndsEarlyAndAWholeListDoesNot(t *testing.T) {
	bubble(t, func(w *testAPI) {
		var want []string
		for range 7 {
			advance(time.Millisecond)
			body := `{"name":"n","image":"i","env":{"A":"` + strings.Repeat("x", 400_000) + `"}}`
			want = append(want, w.want(201, "POST", "/v2/templates", body, asAdmin).field("id"))
		}
		got, sizes := w.allPages(t, "/v2/templates?limit=1000", "templates", asAdmin, nil)
		if diff := cmp.Diff(want, got); diff != "" || !slices.Equal(sizes, []int{3, 3, 1}) {
			t.Errorf("pages of %v records, want 3, 3 and 1 (-made +pages):\n%s", sizes, diff)
		}
		if _, sizes := w.allPages(t, "/v2/templates?limit=2", "templates", asAdmin, nil); !slices.Equal(sizes, []int{2, 2, 2, 1}) {
			t.Errorf("pages of 2 have %v records", sizes)
		}
		whole := w.want(200, "GET", "/v2/templates", "", asAdmin)
		if diff := cmp.Diff(want, idsOf(t, whole, "templates")); diff != "" || whole.header.Get("Link") != "" {
			t.Errorf("without limit, with Link %q (-made +whole):\n%s", whole.header.Get("Link"), diff)
		}
	})
}

// Records that are deleted and created between two pages change nothing for the others.
func TestPagesGoOnWhereTheyEndedWhileRecordsChange(t *testing.T) {
	eachList(t, func(t *testing.T, w *testAPI, path, member string, c creation) {
		want := idsOf(t, w.want(200, "GET", path, "", asAdmin), member)
		made := ""
		got, _ := w.allPages(t, path+"?limit=3", member, asAdmin, func(ids []string) {
			if made == "" {
				advance(time.Millisecond)
				made = w.want(201, "POST", c.path, c.body, asAdmin).field("id")
				w.call("DELETE", c.item+ids[len(ids)-1], "", asAdmin) // the record that the cursor names; not of a shared endpoint
			}
		})
		if diff := cmp.Diff(append(want, made), got); diff != "" {
			t.Errorf("pages (-want +got):\n%s", diff)
		}
	})
}

func TestACursorOfAListIsBoundToItsUserPathAndFilters(t *testing.T) {
	eachList(t, func(t *testing.T, w *testAPI, path, _ string, _ creation) {
		next := nextPage(t, path, w.want(200, "GET", path+"?limit=1", "", asAdmin))
		w.want(200, "GET", strings.Replace(next, "limit=1", "limit=2", 1), "", asAdmin)
		w.want(422, "GET", next+"&includeClusterPods=false", "", asAdmin)
		w.want(422, "GET", next, "", asRoot)
		w.want(422, "GET", next+"&owner=admin", "", asRoot)
		for _, cursor := range []string{"", "x", "!", "AAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"} {
			w.want(422, "GET", path+"?cursor="+cursor, "", asAdmin)
		}
		for _, limit := range []string{"", "0", "-1", "1001", "x", "1.5"} {
			if a := w.want(422, "GET", path+"?limit="+limit, "", asAdmin); a.field("detail") != "limit must be an integer from 1 to 1000" {
				t.Errorf("limit=%s: %s", limit, a.body)
			}
		}
		other := "/v2/pods"
		if path == other {
			other = "/v2/templates"
		}
		w.want(422, "GET", strings.Replace(next, path, other, 1), "", asAdmin)
	})
}
