package podyard_test

import (
	"go/ast"
	"go/parser"
	"go/token"

	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/httpapi"
)

// A door is a way by which somebody else's bytes, connections, files or time come into the server.
// Each is a row of the table "Doors" in docs/security.md, with what may be held there and what counts
// it, because a limit counts only what enters where it stands: for example the budgets of the API said
// nothing of answers that the console made. The tests below find the places in the code where a door
// opens, and each must belong to a row.
//
// To add a door: add its row to the page, with a limit that a Go symbol counts and a test that shows
// it; name its places here; and add an abuse of it to examples/server/neighbour_abuses_linux_test.go.
type door struct {
	row    string
	places []string       // declarations that open it, as "package Function" or "package Type.Method"
	routes []string       // handlers that are mounted, as "package /path"
	areas  []httpapi.Area // of the operations
}

var doors = []door{
	{
		row: "API", routes: []string{"httpapi /", "httpapi *"},
		places: []string{"httpapi/server Server.withPeers", "httpapi/server Server.probe", "httpapi/server Server.probes"},
		areas: []httpapi.Area{
			httpapi.AreaPods, httpapi.AreaVolumes, httpapi.AreaTemplates, httpapi.AreaSSHKeys, httpapi.AreaSecrets, httpapi.AreaKeys, httpapi.AreaBilling, httpapi.AreaClusters,
			httpapi.AreaRegistries, httpapi.AreaEndpoints, httpapi.AreaCatalog, httpapi.AreaBudgets, httpapi.AreaAdmin, httpapi.AreaInterface,
			httpapi.AreaJobs, httpapi.AreaSchedules, httpapi.AreaBatches,
		},
	},
	{row: "Waits"},
	{row: "Event streams"},
	{
		row: "Console pages", places: []string{"examples/server/listen withConsole"},
		routes: []string{"httpapi/console /", "httpapi/console *", "httpapi/console /session", "httpapi/console /a/", "httpapi/console /favicon.svg"},
	},
	{row: "Console data", routes: []string{"httpapi/console /data/", "httpapi/console /api/"}},
	{row: "`/lb/` requests", places: []string{"httpapi toWorker"}, areas: []httpapi.Area{httpapi.AreaBalance}},
	{row: "`/lb/` answers", places: []string{"httpapi newWorkerTransport", "httpapi proxied.RoundTrip", "httpapi workerDialer", "httpapi proxyRequest", "httpapi ServeHTTP"}},
	{row: "Names of pods' ports", places: []string{"httpapi api.newPodPorts", "httpapi podPorts.pass"}},
	{row: "Worker protocol", places: []string{"examples/server/listen forContainers", "httpapi NewForPods"}, areas: []httpapi.Area{httpapi.AreaWorkers}},
	{row: "HTTP/1 before a key", places: []string{"httpapi/server newHTTPServer", "examples/server/listen Open", "examples/server/listen listenAt"}},
	{row: "HTTP/2 before a key", places: []string{"examples/server/listen Listeners.All"}},
	{row: "Peers", places: []string{"httpapi/server peerClient"}, routes: []string{"httpapi/server *", "httpapi/server /"}},
	{row: "Metrics", routes: []string{"examples/server/listen /", "examples/server/listen /metrics"}},
	{row: "Profiles", places: []string{"examples/server/listen forOperators"}, routes: []string{"examples/server/listen /debug/pprof/"}},
	{row: "Answers to webhooks", places: []string{"backend/webhook New", "backend/webhook guard", "backend/webhook newClient"}},
	{row: "Processes of pods", places: []string{"backend/process/internal/supervise launcher", "backend/process/internal/supervise Plan.enter", "backend/process/internal/supervise Plan.become", "backend/process/internal/supervise supervisor.spawnDirectly"}},
	{row: "SSH", places: []string{"httpapi/sshfront Front.serve"}},
	{row: "Commands inside pods", places: []string{"backend/process/internal/supervise joinDirectly", "backend/process/internal/supervise Plan.becomeCommand"}},
	{row: "Logs of pods"},
	{row: "Disks of pods"},
	{row: "Ports of pods", places: []string{"internal/podhost tryListen", "backend/process accepts", "backend/process dial"}},
	{row: "Engine", places: []string{"backend/docker connect", "backend/docker dialHere", "backend/docker Runtime.libpod"}},
	{row: "Programs of the machine", places: []string{"backend/docker changeAddress", "backend/nvidia smi.run", "internal/firewall Run"}},
	{row: "Database", places: []string{"backend/postgres Store.connectPools", "backend/postgres links.connect", "backend/postgres Jobs.jobPool", "backend/postgres Store.connect"}},
	{row: "Backup socket", places: []string{"httpapi/server/config Parts.BackupListener", "httpapi/server/config askForBackup"}},
	{
		row: "Test double", routes: []string{"httpapi/double *", "httpapi/double /"},
		places: []string{
			"examples/server/testdouble Serve", "examples/server/testdouble withHealth", "examples/server/testdouble Options.serve", "examples/server/testdouble Options.double",
			"httpapi/double Server.ImageForward", "httpapi/double containerWorkers.listen",
		},
	},
}

// indoors are the places that look like doors and are none, with the reason. A path that ends in a
// slash is a directory with all that is below it.
var indoors = map[string]string{
	"examples/cluster/":                   "an example of a load balancer, which our packages do not have",
	"examples/embed/":                     "an example program",
	"examples/fleet/":                     "an example program",
	"examples/part/":                      "an example program",
	"examples/product/":                   "an example program",
	"examples/shop/":                      "an example program",
	"examples/server/demo/":               "what a pod of the demonstration runs",
	"backend/postgres/bench/":             "a program for measuring",
	"examples/server/work statusOf":       "a command of a user, who names the server",
	"examples/server/work workplace.run":  "a command of a user, who names the program that it runs",
	"httpapi/client/":                     "it is in the programs of users",
	"httpapi/command/":                    "the commands of users",
	"httpapi/worker/":                     "it is in the programs of workers",
	"httpapi/server/config held.Handle":   "a handler of log lines",
	"httpapi/double Server.Client":        "its transport calls the double in the same process",
	"httpapi/server/config defaultSource": "asks the system which address it would send from, and sends nothing",
	"internal/insideprogram/":             "a program of tests",
}

// opening are the names of other packages that open a door: the types where a value is made, the
// functions wherever they are named.
var opening = map[string]string{
	"net":                             "Listen ListenTCP ListenUDP ListenUnix ListenPacket ListenUnixgram ListenConfig FileListener FileConn FilePacketConn Dial DialTimeout DialTCP DialUDP DialUnix Dialer",
	"net/http":                        "Server Transport Client DefaultClient DefaultTransport ListenAndServe ListenAndServeTLS Serve ServeTLS Get Head Post PostForm",
	"net/http/httputil":               "ReverseProxy NewSingleHostReverseProxy",
	"net/http/pprof":                  "Index Profile Symbol Trace Cmdline Handler",
	"net/rpc":                         "Dial DialHTTP NewServer Register ServeConn",
	"crypto/tls":                      "Listen NewListener Dial DialWithDialer Dialer Server Client",
	"expvar":                          "Handler Publish",
	"os":                              "StartProcess",
	"os/exec":                         "Command CommandContext Cmd",
	"syscall":                         "Socket ForkExec StartProcess Exec Mkfifo",
	"golang.org/x/sys/unix":           "Socket Exec Mkfifo",
	module + "/httpapi/server":        "On",
	"golang.org/x/crypto/ssh":         "NewServerConn NewClientConn Dial",
	"github.com/jackc/pgx/v5":         "Connect ConnectConfig ConnectWithOptions",
	"github.com/moby/moby/client":     "New NewClientWithOpts",
	"github.com/jackc/pgx/v5/pgxpool": "New NewWithConfig",
}

// A place is where a door opens.
type place struct {
	where string // the package and the declaration
	what  string // what is used there
	route string // the package and the path of a handler that is mounted
	pos   token.Position
}

// places finds them in the code that runs in a server: not in tests and suites of tests.
func places(t *testing.T) (list []place) {
	t.Helper()
	fset := token.NewFileSet()
	for _, s := range sources(t, fset) {
		list = append(list, placesOf(fset, s)...)
	}
	return list
}

func placesOf(fset *token.FileSet, s source) (list []place) {
	dir, packages := path.Dir(s.path), imported(s.file)
	for _, d := range s.file.Decls {
		where := dir
		if names := declared(d); len(names) > 0 {
			where += " " + names[0]
		}
		add := func(n ast.Node, what, route string) {
			list = append(list, place{where, what, route, fset.Position(n.Pos())})
		}
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.StarExpr: // a pointer to one that others made
				_, ok := n.X.(*ast.SelectorExpr)
				return !ok
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && slices.Contains(strings.Fields(opening[packages[x.Name]]), n.Sel.Name) {
					add(n, packages[x.Name]+"."+n.Sel.Name, "")
				}
			case *ast.CallExpr:
				if route, ok := mounted(n); ok {
					add(n, "", dir+" "+route)
				}
				if (isSelector(n.Fun, "strings", "HasPrefix") || isSelector(n.Fun, "strings", "CutPrefix")) && isPath(n.Args[0]) {
					add(n, routed, "")
				}
			case *ast.SwitchStmt:
				if isPath(n.Tag) {
					add(n, routed, "")
				}
			case *ast.BinaryExpr:
				if n.Op == token.EQL && (isPath(n.X) || isPath(n.Y)) {
					add(n, routed, "")
				}
			}
			return true
		})
	}
	return list
}

var majorVersion = regexp.MustCompile(`^v\d+$`)

// imported are the packages of a file by the names that they have there.
func imported(f *ast.File) map[string]string {
	names := map[string]string{}
	for _, i := range f.Imports {
		pkg, _ := strconv.Unquote(i.Path.Value) // the parser has read it
		name := path.Base(pkg)
		if majorVersion.MatchString(name) {
			name = path.Base(path.Dir(pkg))
		}
		if i.Name != nil {
			name = i.Name.Name
		}
		names[name] = pkg
	}
	return names
}

// mounted is the path of a call of Handle or HandleFunc of a mux, without the method. A path that is
// computed begins where its literal does, or is "*".
func mounted(c *ast.CallExpr) (route string, ok bool) {
	f, ok := c.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != "Handle" && f.Sel.Name != "HandleFunc" || len(c.Args) != 2 {
		return "", false
	}
	lit, ok := c.Args[0].(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "*", true
	}
	route, _ = strconv.Unquote(lit.Value) // the parser has read it
	if _, after, ok := strings.Cut(route, " "); ok {
		route = after
	}
	return route, true
}

// routed is what is used where a handler is mounted without a mux: the path of a request is compared.
const routed = "the path of a request"

func isPath(e ast.Expr) bool {
	path, ok := e.(*ast.SelectorExpr)
	if !ok || path.Sel.Name != "Path" {
		return false
	}
	url, ok := path.X.(*ast.SelectorExpr)
	return ok && url.Sel.Name == "URL"
}

// rowOf is the door of a place, or empty.
func rowOf(p *place) string {
	row, longest := "", -1
	for _, d := range doors {
		if p.route == "" && slices.Contains(d.places, p.where) {
			return d.row
		}
		for _, r := range d.routes {
			if p.route != "" && covers(r, p.route) && len(r) > longest {
				row, longest = d.row, len(r)
			}
		}
	}
	return row
}

// covers reports whether an entry of routes is a route, or a path that contains it: "/data/" does, and
// "/" is itself only.
func covers(entry, route string) bool {
	return entry == route || strings.HasSuffix(entry, "/") && !strings.HasSuffix(entry, " /") && strings.HasPrefix(route, entry)
}

// isIndoors reports whether a place is in the list of those that are no doors, by itself or with its
// whole directory, whose entry ends in a slash.
func isIndoors(p *place) (entry string, ok bool) {
	dir, _, _ := strings.Cut(p.where, " ")
	for entry := range indoors {
		if entry == p.where || strings.HasSuffix(entry, "/") && strings.HasPrefix(dir+"/", entry) {
			return entry, true
		}
	}
	return "", false
}

const newDoor = "it opens a door that has no row: say in docs/security.md (Doors) who may come, what may be held there, what counts it and which test shows that, and name the place in doors_test.go"

func TestEveryDoorHasARow(t *testing.T) {
	used := map[string]bool{}
	found := places(t)
	for _, p := range found {
		if entry, ok := isIndoors(&p); ok {
			used[entry] = true
			continue
		}
		if rowOf(&p) == "" {
			t.Errorf("%s: %s%s in %s: %s", p.pos, p.what, p.route, p.where, newDoor)
		}
		used[p.where] = true
	}
	for entry := range indoors {
		if !used[entry] {
			t.Errorf("%q is no place where a door could open: take it out of indoors", entry)
		}
	}
	for _, d := range doors {
		for _, where := range d.places {
			if !used[where] {
				t.Errorf("%s: %q opens no door: take it out of the list", d.row, where)
			}
		}
		for _, route := range d.routes {
			if !slices.ContainsFunc(found, func(p place) bool { return covers(route, p.route) }) {
				t.Errorf("%s: nothing is mounted at %q: take it out of the list", d.row, route)
			}
		}
	}
	if len(found) < 40 {
		t.Errorf("only %d places were found", len(found))
	}
}

// An area of the operations is mounted by the router of httpapi, so no place in the code shows it.
func TestEveryAreaOfTheOperationsIsBehindADoor(t *testing.T) {
	for _, o := range httpapi.Operations() {
		if !slices.ContainsFunc(doors, func(d door) bool { return slices.Contains(d.areas, o.Area) }) {
			t.Errorf("%s %s is of the area %s: %s", o.Methods[0], o.Path, o.Area, newDoor)
		}
	}
}

// The finder must be able to say no: each row is code that is not there.
func TestNewDoorsAreFound(t *testing.T) {
	for _, row := range []struct{ code, want string }{
		{`import "net"; func Open() { net.Listen("tcp", ":1") }`, "new Open: net.Listen"},
		{`import "net"; func (s *Server) Open() { _ = (&net.ListenConfig{}).Listen }`, "new Server.Open: net.ListenConfig"},
		{`import "net"; func Open() { var lc net.ListenConfig; _ = lc }`, "new Open: net.ListenConfig"},
		{`import "net"; type T struct { d net.Dialer }`, "new T: net.Dialer"},
		{`import web "net/http"; func Ask() { _ = &web.Client{} }`, "new Ask: net/http.Client"},
		{`import "net/http"; func Ask(c *http.Client) { }`, ""},
		{`import "net/http"; func Ask() { http.Get("http://a") }`, "new Ask: net/http.Get"},
		{`import "net/http"; var s = new(http.Server)`, "new s: net/http.Server"},
		{`import "os/exec"; func Do() { exec.Command("ls") }`, "new Do: os/exec.Command"},
		{`func (s *Server) Open() { s.mux.HandleFunc("GET /v9/pods", f) }`, "new Server.Open: new /v9/pods"},
		{`func (s *Server) Open(path string) { s.mux.Handle(path, f) }`, "new Server.Open: new *"},
		{`import "strings"; func Serve(r *Request) { if strings.HasPrefix(r.URL.Path, "/v9/") { } }`, "new Serve: the path of a request"},
		{`func Serve(r *Request) { switch r.URL.Path { case "/v9": } }`, "new Serve: the path of a request"},
		{`func Serve(r *Request) { if r.URL.Path == "/v9" { } }`, "new Serve: the path of a request"},
	} {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, "new/new.go", "package x; "+row.code, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		found := placesOf(fset, source{"new/new.go", f})
		got := ""
		for _, p := range found {
			got += p.where + ": " + p.what + p.route
			if rowOf(&p) != "" {
				t.Errorf("%s: it belongs to the row %q, want none", row.code, rowOf(&p))
			}
		}
		if got != row.want {
			t.Errorf("%s: found %q, want %q", row.code, got, row.want)
		}
	}
}

// A doorRow is a row of the table of the page.
type doorRow struct{ door, who, holds, counts, tests string }

func doorRows(t *testing.T) (rows []doorRow) {
	t.Helper()
	_, page, _ := strings.Cut(text(t, "docs/security.md"), "\n## Doors\n")
	page, _, _ = strings.Cut(page, "\n## ")
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| Door |") {
			continue
		}
		c := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(c) != 5 {
			t.Fatalf("docs/security.md, Doors: %q has %d cells, want 5", line, len(c))
		}
		for i := range c {
			c[i] = strings.TrimSpace(c[i])
			if c[i] == "" {
				t.Errorf("docs/security.md, Doors: %q has an empty cell", line)
			}
		}
		rows = append(rows, doorRow{c[0], c[1], c[2], c[3], c[4]})
	}
	return rows
}

var code = regexp.MustCompile("`([^`]+)`")

// unheld is what a cell says where nothing counts or shows: the page then says below the table what
// follows from it.
const unheld = "see below"

// Whoever reads a row finds what it names, and an abuse of each door in the suite of neighbours.
func TestTheTableOfDoorsNamesWhatExists(t *testing.T) {
	rows := doorRows(t)
	var have, want []string
	for _, r := range rows {
		have = append(have, r.door)
	}
	for _, d := range doors {
		want = append(want, d.row)
	}
	slices.Sort(have)
	slices.Sort(want)
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("rows of docs/security.md, Doors (-doors_test.go +page):\n%s", diff)
	}
	symbols, tests, abused := symbolsOf(t), testsOf(t), abusesOf(t)
	for _, r := range rows {
		counts, shows := code.FindAllStringSubmatch(r.counts, -1), code.FindAllStringSubmatch(r.tests, -1)
		for _, m := range counts {
			if !symbols[m[1]] {
				t.Errorf("%s: the page says that %s counts it, which does not exist", r.door, m[1])
			}
		}
		for _, m := range shows {
			if !tests[m[1]] {
				t.Errorf("%s: the page says that %s shows it, which does not exist", r.door, m[1])
			}
		}
		if len(counts) == 0 && !strings.Contains(r.counts, unheld) || len(shows) == 0 && !strings.Contains(r.tests, unheld) {
			t.Errorf("%s: name the symbol that counts it and a test that shows it, or write %q and say below the table what follows", r.door, unheld)
		}
		if abused[r.door] == 0 && notAbused[r.door] == "" {
			t.Errorf("%s: no abuse of examples/server is of this door", r.door)
		}
		if abused[r.door] > 0 && notAbused[r.door] != "" {
			t.Errorf("%s: there are abuses of it: take it out of notAbused", r.door)
		}
		delete(abused, r.door)
	}
	for d := range abused {
		t.Errorf("examples/server has an abuse of the door %q, which has no row", d)
	}
}

// notAbused are the doors that no user of another server could abuse in the suite of neighbours, and
// why.
var notAbused = map[string]string{
	"Peers":                   "only servers with the secret of the store come, and others are refused as before a key",
	"Ports of pods":           "a pod that takes the ports of others is a matter of backend/process",
	"Processes of pods":       "backend/process attacks the machine from within a pod",
	"Engine":                  "it is the operator's; backend/docker has the tests with one that lies or dies",
	"Programs of the machine": "no user chooses what they say",
	"Database":                "it is the operator's",
	"Backup socket":           "only the user of the server reaches it",
	"Test double":             "it has no neighbours",
}

// symbolsOf are all names of the code, exported or not: "conns.Limiter.makeWay".
func symbolsOf(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, s := range sources(t, token.NewFileSet()) {
		for _, d := range s.file.Decls {
			for _, n := range declared(d) {
				names[s.file.Name.Name+"."+n] = true
			}
		}
	}
	return names
}

// testsOf are the names of tests.
func testsOf(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, path := range files(t, "_test.go") {
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(text(t, path), -1) {
			names[m[1]] = true
		}
	}
	return names
}

// abusesOf are how many abuses the suite of neighbours has of each door.
func abusesOf(t *testing.T) map[string]int {
	t.Helper()
	all := map[string]int{}
	for _, path := range files(t, "_linux_test.go") {
		if strings.HasPrefix(path, "examples/server/neighbour_abuses") {
			for _, m := range regexp.MustCompile(`(?:\bdoor: +|\bofPod\()"([^"]+)"`).FindAllStringSubmatch(text(t, path), -1) {
				all[m[1]]++
			}
		}
	}
	return all
}
