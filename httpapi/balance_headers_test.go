package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/httpapi"
)

// says is a worker that answers with these bytes, whatever they are, and ends the connection.
func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, text)
		_ = c.Close()
	}
}

// saysWhatIsAsked is says for the query of a request.
func saysWhatIsAsked(text func(path string) string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { says(text(strings.TrimPrefix(r.URL.Path, "/")))(w, r) }
}

func TestAStatusThatDoesNotExistIsABadAnswerOfTheWorker(t *testing.T) {
	h := saysWhatIsAsked(func(status string) string { return "HTTP/1.1 " + status + " x\r\nContent-Length: 2\r\n\r\nok" })
	balanced(t, nil, func(w *balancedAPI) {
		for status, want := range map[string]int{"000": 502, "001": 502, "099": 502, "200": 200, "299": 299, "404": 404, "599": 599, "600": 502, "999": 502} {
			if a := w.get("/lb/web/" + status); a.status != want || want == 502 && !strings.Contains(a.body, "status that does not exist") {
				t.Errorf("a worker's %s is answered %d %.100s, want %d", status, a.status, a.body, want)
			}
		}
	}, h)
}

func TestTheHeadOfAWorkersAnswerIsBounded(t *testing.T) {
	head := func(fields, size int) string {
		return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + strings.Repeat("A: b\r\n", fields) + "Long: " + strings.Repeat("x", size) + "\r\n\r\n"
	}
	early := func(n int) string { return strings.Repeat("HTTP/1.1 103 x\r\nLink: <a>\r\n\r\n", n) + head(0, 0) }
	answers := map[string]struct {
		text string
		want int
	}{
		"small":            {head(1, 1), 200},
		"many-fields":      {head(250, 1), 200},
		"too-many-fields":  {head(257, 1), 502},
		"large":            {head(1, 60<<10), 200},
		"too-large":        {head(1, 65<<10), 502},
		"early":            {early(8), 200},
		"too-many-early":   {early(9), 502},
		"early-for-ever":   {early(5000), 502},
		"too-large-early":  {"HTTP/1.1 103 x\r\nLink: " + strings.Repeat("x", 65<<10) + "\r\n\r\n" + head(0, 0), 502},
		"early-with-many":  {"HTTP/1.1 103 x\r\n" + strings.Repeat("Link: x\r\n", 257) + "\r\n" + head(0, 0), 502},
		"trailers-for-us":  {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\n", 200},
		"unknown-and-last": {"HTTP/1.1 150 x\r\nA: b\r\n\r\n" + head(0, 0), 200},
	}
	balanced(t, nil, func(w *balancedAPI) {
		for path, row := range answers {
			if status, _ := w.last("/lb/web/"+path, "podyard.test"); status != row.want {
				t.Errorf("%s is answered %d, want %d", path, status, row.want)
			}
		}
	}, saysWhatIsAsked(func(path string) string { return answers[path].text }))
}

// last returns the answer to a GET on a host, with what its connection carried as text.
func (w *balancedAPI) last(target, host string) (status int, text string) {
	w.t.Helper()
	c := w.net.dial(w.t)
	defer c.Close()
	go func() {
		_, _ = io.WriteString(c, strings.Replace(requestText("GET", target, "", "TE: trailers"), "podyard.test", host, 1))
	}()
	b, _ := io.ReadAll(c)
	text = string(b)
	for r := bufio.NewReader(strings.NewReader(text)); ; {
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			w.t.Fatalf("%s: %v in %.200q", target, err, text)
		}
		if res.StatusCode >= 200 {
			return res.StatusCode, text
		}
	}
}

// originWide are headers of a worker's answer that act on more than the answer.
var originWide = []string{
	"Set-Cookie", "set-cookie2", "Set-Login", "Clear-Site-Data", "Service-Worker-Allowed", "Strict-Transport-Security", "Alt-Svc",
	"Origin-Agent-Cluster", "NEL", "Report-To", "Reporting-Endpoints", "Accept-CH", "Critical-CH", "Use-As-Dictionary",
}

func TestNoPartOfAnAnswerActsOnTheSharedOrigin(t *testing.T) {
	lines := ""
	for _, name := range originWide {
		lines += name + ": CANARY\r\n"
	}
	names := strings.Join(originWide, ", ")
	answers := map[string]string{
		"head":       "HTTP/1.1 200 OK\r\n" + lines + "Content-Length: 2\r\nKept: yes\r\n\r\nok",
		"early":      "HTTP/1.1 103 x\r\n" + lines + "Link: yes\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"trailers":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n" + lines + "Kept: yes\r\n\r\n",
		"announced":  "HTTP/1.1 200 OK\r\nTrailer: Kept, " + names + "\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n" + lines + "Kept: yes\r\n\r\n",
		"some-of":    "HTTP/1.1 200 OK\r\nTrailer: Set-Cookie\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n" + lines + "Kept: yes\r\n\r\n",
		"switching":  "HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + lines + "\r\n",
		"processing": "HTTP/1.1 102 x\r\n" + lines + "\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\nKept: yes\r\n\r\nok",
	}
	set := func(o *httpapi.Options) { o.LoadBalancerDomain = "lb.example.com" }
	balanced(t, set, func(w *balancedAPI) {
		for path := range answers {
			_, text := w.last("/lb/web/"+path, "podyard.test")
			if strings.Contains(text, "CANARY") {
				t.Errorf("%s: a header that acts on the origin passes:\n%s", path, text)
			}
			if !strings.Contains(text, "yes") && path != "switching" {
				t.Errorf("%s: what is for this answer does not pass:\n%s", path, text)
			}
		}
		if _, text := w.last("/head", "web.lb.example.com"); strings.Count(text, "CANARY") != len(originWide) {
			t.Errorf("on a host of its own the head is changed:\n%s", text)
		}
		for _, path := range []string{"/trailers", "/announced", "/early"} { // decided by the head alone, there too
			if _, text := w.last(path, "web.lb.example.com"); strings.Contains(text, "CANARY") || !strings.Contains(text, "yes") {
				t.Errorf("on a host of its own %s is not like the head's:\n%s", path, text)
			}
		}
	}, saysWhatIsAsked(func(path string) string { return answers[path] }))
}

func TestWhatSaysWhoAClientIsDoesNotReachTheWorker(t *testing.T) {
	show := func(w http.ResponseWriter, r *http.Request) { _ = r.Header.Write(w) }
	balanced(t, nil, func(w *balancedAPI) {
		for _, name := range []string{
			"X-Real-IP", "X_Real_IP", "True-Client-IP", "true-client-ip", "X-Client-IP", "X-Cluster-Client-IP", "CF-Connecting-IP", "Fastly-Client-IP", "Forwarded",
			"X-Forwarded", "X-Forwarded-Server", "X-Original-URL", "X-Rewrite-URL", "X-Rewrite_URL", "X-Original-Host", "X-Host", "X-Envoy-External-Address", "Proxy", "Remote-User", "X-Remote-User",
		} {
			if a := w.get("/lb/web/x", name+": CANARY", "X-Custom: stays"); strings.Contains(a.body, "CANARY") || !strings.Contains(a.body, "stays") || !strings.Contains(a.body, "X-Forwarded-For: 192.0.2.7") {
				t.Errorf("with %s of the client the worker sees:\n%s", name, a.body)
			}
		}
	}, show)
}

func TestAClientThatDoesNotReadTheHeadOfAnAnswerIsCutOff(t *testing.T) {
	long := strings.Repeat("x", 60<<10)
	answers := map[string]string{
		"without-body": "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nLong: " + long + "\r\n\r\n",
		"with-body":    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nLong: " + long + "\r\n\r\nok",
		"early":        "HTTP/1.1 103 x\r\nLink: " + long + "\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
	}
	balanced(t, nil, func(w *balancedAPI) {
		for path := range answers {
			c := w.net.dial(t)
			_, _ = fmt.Fprint(c, requestText("GET", "/lb/web/"+path, ""))
			time.Sleep(time.Minute)
			if b, _ := io.ReadAll(c); len(b) > len(long) {
				t.Errorf("%s: after a minute without a read the answer is still there", path)
			}
			_ = c.Close()
		}
	}, saysWhatIsAsked(func(path string) string { return answers[path] }))
}
