package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/endpoints"
)

func descriptionOperations() []operation {
	return group(APIControl, AreaInterface,
		op("openapi", "GET /v2/openapi.json", ScopeNone, openAPI, added, unlimited),
	)
}

func (b *describer) describeItself() map[string]description {
	return map[string]description{
		"openapi": {summary: "Describe the interface", text: "Needs no key. Clients can ask again with If-None-Match.", answers: ok(openapi.Open())},
	}
}

// A served is a document as it is served.
type served struct {
	body []byte
	etag string
	err  error
}

// descriptionMaxAge is how long a client may use the document without asking again.
const descriptionMaxAge = "max-age=300"

// openAPI answers with the description of the interface (docs/decisions.md 46). It is made
// at the first request.
func openAPI(c *call) error {
	d := c.openAPI()
	if d.err != nil {
		return d.err
	}
	h := c.w.Header()
	h.Set("ETag", d.etag)
	h.Set("Cache-Control", "public, "+descriptionMaxAge)
	h.Set("X-Content-Type-Options", "nosniff")
	if slices.Contains(strings.Split(strings.ReplaceAll(c.r.Header.Get("If-None-Match"), " ", ""), ","), d.etag) {
		c.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(d.body)))
	c.w.WriteHeader(http.StatusOK)
	_, _ = c.w.Write(d.body) // if this fails, the client is gone
	return nil
}

// document returns the description of the operations that these services have, made once.
func document(s *Services, url string) func() served {
	return sync.OnceValue(func() served {
		body, err := json.Marshal(describe(s, url))
		sum := sha256.Sum256(body)
		return served{body, `"` + hex.EncodeToString(sum[:12]) + `"`, err}
	})
}

// describe makes the document. url is where the paths are served; empty: where the document
// is.
func describe(s *Services, url string) *openapi.Document {
	b := newDescriber()
	doc := &openapi.Document{
		OpenAPI: "3.1.0",
		Info:    openapi.Info{Title: "podyard", Version: "2.0.0", Description: aboutTheDocument},
		Tags:    tags(),
		Paths:   map[string]map[string]*openapi.Operation{},
		Components: openapi.Components{Schemas: b.Components, SecuritySchemes: map[string]*openapi.SecurityScheme{
			"bearerAuth": {Type: "http", Scheme: "bearer", Description: "The key as a bearer token."},
			"bareKey":    {Type: "apiKey", Name: "Authorization", In: "header", Description: "The key alone, without a scheme."},
		}},
	}
	if url != "" {
		doc.Servers = []openapi.Server{{URL: url}}
	}
	doc.Components.Responses = b.problems()
	texts := b.descriptions()
	for _, o := range table() {
		if s.has(o.Area) {
			d := texts[o.Name]
			addOperation(doc, &o, &d)
		}
	}
	for _, s := range b.Components { // bodies of requests are among them
		s.ForGenerators()
	}
	explain(doc)
	return doc
}

// aboutTheDocument is the first text that a reader of the document sees.
const aboutTheDocument = "The interface as this server serves it. What is marked x-podyard is an addition of this service: " +
	"the hosted service with the same interface does not have it. x-podyard-scope is the scope that a key needs. " +
	"Paths marked x-podyard-not-offered answer 404 with a text that says so."

func tags() []openapi.Tag {
	return []openapi.Tag{
		{Name: string(APIControl), Description: "Pods, endpoints, volumes, templates, credentials, the catalog, bills and keys."},
		{Name: string(APIJobs), Description: "Jobs of an endpoint."},
		{Name: string(APIOpenAI), Description: "Jobs in the form of OpenAI's interface."},
		{Name: string(APIBalance), Description: "Requests to the workers of load-balancing endpoints."},
		{Name: string(APIWorkers), Description: "What workers of an endpoint call."},
		{Name: string(APILegacy), Description: "The one operation of version 1."},
	}
}

// addOperation adds an operation once for each of its methods.
func addOperation(doc *openapi.Document, o *operation, d *description) {
	path := strings.ReplaceAll(o.Path, "...}", "}")
	if doc.Paths[path] == nil {
		doc.Paths[path] = map[string]*openapi.Operation{}
	}
	for i, method := range o.Methods {
		x := &openapi.Operation{
			OperationID: o.Name, Summary: d.summary, Description: d.text, Tags: []string{string(o.API), string(o.Area)},
			Security: securityOf(o), Parameters: parametersOf(o, d), Responses: responsesOf(o, d), Added: o.Added, Scope: string(o.Scope),
			NotOffered: o.NotOffered != "",
		}
		if i > 0 { // the names of operations are unique
			x.OperationID += method[:1] + strings.ToLower(method[1:])
		}
		if o.NotOffered != "" {
			x.Summary, x.Description = "Not offered", o.NotOffered
		}
		if d.body != nil && method != http.MethodGet {
			x.RequestBody = &openapi.Body{Required: !d.optional, Content: jsonOf("application/json", d.body.ForGenerators())}
		}
		doc.Paths[path][strings.ToLower(method)] = x
	}
}

func securityOf(o *operation) []map[string][]string {
	forms := []map[string][]string{}
	if o.Scope == ScopeNone {
		return forms
	}
	forms = append(forms, map[string][]string{"bearerAuth": {}})
	if o.API.conventions().bareKeys {
		forms = append(forms, map[string][]string{"bareKey": {}})
	}
	return forms
}

// parametersOf returns the parameters of the path, the query and the header.
func parametersOf(o *operation, d *description) (list []*openapi.Parameter) {
	for segment := range strings.SplitSeq(o.Path, "/") {
		if name, isOne := strings.CutPrefix(segment, "{"); isOne {
			name = strings.TrimRight(name, ".}")
			s := openapi.Of("string").NotEmpty()
			if name == "endpoint" {
				s.Not = values(endpoints.Reserved()...)
			}
			list = append(list, &openapi.Parameter{Name: name, In: "path", Required: true, Schema: s})
		}
	}
	list = append(list, d.params...)
	if o.Keyed {
		list = append(list, addedParams(&openapi.Parameter{
			Name: keyHeader, In: "header", Schema: &openapi.Schema{Type: openapi.Types{"string"}, MaxLength: idempotency.MaxKey + 2, Pattern: "^[!-~]+$"},
			Description: "A request that is repeated with its key within 24 hours is not made again. The answer then has the header " + replayedHeader + ".",
		})...)
	}
	if o.Paged {
		params := []*openapi.Parameter{number("limit", 1, maxListPage, nil, "The most records of a page. Absent: the list is whole."), cursorParam()}
		if o.pages != pagesInBody {
			params = addedParams(params...)
		}
		list = append(list, params...)
	}
	switch o.Owners {
	case OwnersOne:
		list = append(list, addedParams(inQuery("owner", openapi.Of("string").NotEmpty(), "For operators: the user whose records these are."))...)
	case OwnersAll:
		list = append(list, addedParams(inQuery("owner", openapi.Of("string").NotEmpty(),
			"For operators: the user whose records these are, or * for those of all users. The items of a list are then as x-podyard-items says."))...)
	}
	return list
}

// headersOf returns the headers of a success.
func headersOf(o *operation, d *description) map[string]*openapi.Header {
	list := map[string]*openapi.Header{}
	if o.Limit == LimitWindows {
		list = quotaHeaders()
	}
	if o.Keyed {
		list[replayedHeader] = &openapi.Header{Description: "true: an earlier request with the key created this.", Schema: openapi.Of("string")}
	}
	if o.Paged {
		list["Link"] = linkHeader()
	}
	maps.Copy(list, d.headers)
	return list
}

func responsesOf(o *operation, d *description) map[string]*openapi.Response {
	list := map[string]*openapi.Response{}
	for status, name := range problemNames(o, d) {
		list[status] = &openapi.Response{Ref: "#/components/responses/" + name}
	}
	for status, body := range d.answers {
		r := &openapi.Response{Description: http.StatusText(status) + ".", Headers: headersOf(o, d)}
		media := d.media
		if media == "" {
			media = "application/json"
		}
		if body != nil {
			r.Content = jsonOf(media, body)
		}
		list[strconv.Itoa(status)] = r
	}
	return list
}

// descriptions describes the operations by their names. A test requires one for each that is
// offered.
func (b *describer) descriptions() map[string]description {
	all := map[string]description{}
	for _, part := range []func() map[string]description{
		b.describePods,
		b.describeClusters,
		b.describeVolumes,
		b.describeGlobalVolumes,
		b.describeTemplates,
		b.describeSSHKeys,
		b.describeInside,
		b.describeKeys,
		b.describeSecrets,
		b.describeLimits,
		b.describeBilling,
		b.describeRegistries,
		b.describeEndpoints,
		b.describeEndpointWorkers,
		b.describeBuilds,
		b.describeEndpointJobs,
		b.describeQueueSettings,
		b.describeDeliveries,
		b.describeCatalog,
		b.describeAudit,
		b.describeReload,
		b.describeCordons,
		b.describeState,
		b.describeUsers,
		b.describeItself,
		b.describeJobs,
		b.describeStreams,
		b.describeDead,
		b.describeJobLog,
		b.describeActions,
		b.describeEvents,
		b.describeSchedules,
		b.describeBatches,
		b.describeOpenAI,
		b.describeWorkers,
		b.describeBalance,
	} {
		maps.Copy(all, part())
	}
	return all
}
