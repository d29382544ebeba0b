package httpapi

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"net/http"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit/budget"
)

// Limits of what runs inside pods (docs/decisions.md 54).
const (
	maxExecBody    = 7 << 20 // a stdin of maxExecStdin, escaped
	maxExecStdin   = 1 << 20
	maxExecOutput  = 1 << 20 // of each stream that is answered
	execTimeout    = time.Minute
	minExecTimeout = time.Second
	maxExecTimeout = 10 * time.Minute

	maxFilesBytes   = 64 << 30
	maxFilesEntries = 1_000_000
	maxFilesTime    = time.Hour
	maxFilesName    = 4 << 10 // bytes of a name in an archive; no kernel takes a longer path
	maxFilesError   = 4 << 10 // bytes of what tar says

	maxTerminalFrame = 64 << 10
	terminalPing     = 15 * time.Second
	insideLook       = time.Second // between two looks whether the key is still good
)

func insideOperations() []operation {
	return group(APIControl, AreaPods,
		op("execPod", "POST /v2/pods/{id}/exec", ScopePodsWrite, execPod, added, staysOpen(budget.Sessions), bodyUpTo(maxExecBody)),
		op("podTerminal", "GET /v2/pods/{id}/terminal", ScopePodsWrite, podTerminal, added, sideEffects, alwaysNoted, staysOpen(budget.Sessions)),
		op("getPodFiles", "GET /v2/pods/{id}/files", ScopePodsWrite, getPodFiles, added, sideEffects, alwaysNoted, staysOpen(budget.Sessions)),
		op("putPodFiles", "PUT /v2/pods/{id}/files", ScopePodsWrite, putPodFiles, added, staysOpen(budget.Sessions)),
	)
}

// alwaysNoted puts all requests of an operation into the audit log.
func alwaysNoted(o *operation) { o.acts = actsOfAll }

func (b *describer) describeInside() map[string]description {
	files := inQuery("path", openapi.Of("string").NotEmpty(), "An absolute path inside the pod.")
	files.Required = true
	return map[string]description{
		"execPod": {
			summary: "Run a command inside a pod", text: "As the pod's user, with the environment of its first process. The answer comes when it has ended. Each stream is answered to 1 MB.",
			body: b.Component("ExecRequest", execBody()), answers: ok(openapi.For[execAnswer](&b.Builder)),
		},
		"podTerminal": {
			summary: "Open a terminal inside a pod",
			text:    "A WebSocket. Binary messages are the bytes of the terminal, in both directions. A text message {\"columns\":80,\"rows\":24} of the client is a new size, and {\"exitCode\":0} of the server, or {\"error\":\"...\"}, the end.",
			params: []*openapi.Parameter{
				inQuery("command", openapi.List(openapi.Of("string")), "The program and its arguments, each as a parameter of its own. Default: a login shell."),
				number("columns", 1, math.MaxUint16, 80, "The width."), number("rows", 1, math.MaxUint16, 24, "The height."),
			},
			answers: answers{http.StatusSwitchingProtocols: nil},
		},
		"getPodFiles": {summary: "Read files of a pod", text: "A file, or a directory with all that is below it, by the pod's own tar.", params: []*openapi.Parameter{files}, answers: ok(openapi.Of("string")), media: "application/x-tar"},
		"putPodFiles": {summary: "Write files into a pod", text: "The body is a tar, which the pod's own tar extracts into a directory that is there. An entry that leads out of it, through a link of the archive, or to a device is refused, and entries before it were written.", params: []*openapi.Parameter{files}, answers: gone()},
	}
}

func execBody() *openapi.Schema {
	s := recorded(func(o *object) { o.execRequest() })
	s.Required = []string{"command"}
	s.At("timeout").Between(int(minExecTimeout.Milliseconds()), int(maxExecTimeout.Milliseconds())).Defaults(int(execTimeout.Milliseconds()))
	return s
}

// An execAnswer is how a command ended.
type execAnswer struct {
	ExitCode  int    `json:"exitCode"`
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	Truncated bool   `json:"truncated"`
}

// An execRequest is a command for a pod.
type execRequest struct {
	command []string
	stdin   string
	timeout time.Duration
}

func (o *object) execRequest() (r execRequest) {
	o.require("command")
	r.command = o.strings("command")
	if r.command != nil && len(r.command) == 0 {
		o.faults.Add(problem.Invalid, o.pointer("command"), "must have a program")
	}
	if s := o.str("stdin"); s != nil {
		if r.stdin = *s; len(r.stdin) > maxExecStdin {
			o.faults.Add(problem.Invalid, o.pointer("stdin"), "must have at most %d bytes", maxExecStdin)
		}
	}
	r.timeout = execTimeout
	if n := o.integer("timeout"); n != nil {
		if r.timeout = time.Duration(*n) * time.Millisecond; *n < int(minExecTimeout.Milliseconds()) || *n > int(maxExecTimeout.Milliseconds()) {
			o.faults.Add(problem.Invalid, o.pointer("timeout"), "must be from %d to %d milliseconds", minExecTimeout.Milliseconds(), maxExecTimeout.Milliseconds())
		}
	}
	o.unknown()
	return r
}

var errKeyEnded = problem.New(problem.Unauthorized, "the key is no longer good")

// inside returns a context for what runs inside a pod. It ends soon after the key does, with errKeyEnded.
func (c *call) inside(limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(c.r.Context(), limit)
	ctx, end := context.WithCancelCause(ctx)
	go func() {
		t := time.NewTicker(insideLook)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				if !c.stillAllowed() {
					end(errKeyEnded)
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() { end(nil); cancel() }
}

// ended returns what a client is told of a command that its context has ended.
func ended(ctx context.Context, err error, limit time.Duration) error {
	switch cause := context.Cause(ctx); {
	case cause == nil:
		return err
	case errors.Is(cause, errKeyEnded):
		return errKeyEnded
	case errors.Is(cause, context.DeadlineExceeded):
		return problem.Newf(problem.WorkerTimeout, "it did not end in %d milliseconds, and was ended", limit.Milliseconds())
	}
	return err
}

// A head keeps the first bytes of an output.
type head struct {
	kept bytes.Buffer
	most int
	cut  bool
}

// Write implements io.Writer.
func (h *head) Write(b []byte) (int, error) {
	if room := h.most - h.kept.Len(); len(b) > room {
		h.cut = true
		h.kept.Write(b[:room])
		return len(b), nil
	}
	return h.kept.Write(b)
}

// text is what was kept, without the half of a character.
func (h *head) text() string {
	b := h.kept.Bytes()
	for i := 1; h.cut && i < utf8.UTFMax && i <= len(b); i++ {
		if utf8.RuneStart(b[len(b)-i]) {
			if !utf8.FullRune(b[len(b)-i:]) {
				b = b[:len(b)-i]
			}
			break
		}
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// runningPod returns the id of the pod in the path, if it runs. Each operation calls podExists first (the
// body of a request for a record of others is not read: findOthers), and this when the request is valid.
func (c *call) runningPod() (string, error) {
	p, err := c.Pods.Get(c.r.Context(), c.owner, c.r.PathValue("id"))
	if err != nil {
		return "", err
	}
	if p.Status() != pods.Running {
		return "", pods.ErrNotRunning
	}
	return p.ID, nil
}

func execPod(c *call) error {
	if err := c.podExists(); err != nil {
		return err
	}
	var faults problem.Violations
	o, err := c.jsonObject(&faults)
	if err != nil {
		return err
	}
	r := o.execRequest()
	if err := faults.Err([]string{"command", "stdin", "timeout"}); err != nil {
		return err
	}
	pod, err := c.runningPod()
	if err != nil {
		return err
	}
	ctx, cancel := c.inside(r.timeout)
	defer cancel()
	out, errs := &head{most: maxExecOutput}, &head{most: maxExecOutput}
	code, err := c.Pods.Exec(ctx, c.owner, pod, pods.Command{Argv: r.command}, pods.Streams{
		Stdin: strings.NewReader(r.stdin), Stdout: out, Stderr: errs,
	})
	if err != nil {
		return ended(ctx, err, r.timeout)
	}
	return writeJSON(c.w, http.StatusOK, execAnswer{code, out.text(), errs.text(), out.cut || errs.cut})
}

// LoginShell is the command of a terminal for which nobody has named one.
func LoginShell() []string { return []string{"sh", "-c", loginShell} }

// loginShell is what a terminal runs.
const loginShell = "if command -v bash >/dev/null 2>&1; then exec bash -l; fi; exec sh -l"

// podTerminal serves a WebSocket with a terminal.
func podTerminal(c *call) error {
	if err := c.podExists(); err != nil {
		return err
	}
	columns, err := c.queryInt("columns", 80, 1, math.MaxUint16)
	if err != nil {
		return err
	}
	rows, err := c.queryInt("rows", 24, 1, math.MaxUint16)
	if err != nil {
		return err
	}
	pod, err := c.runningPod()
	if err != nil {
		return err
	}
	argv := c.r.URL.Query()["command"]
	if len(argv) == 0 {
		argv = LoginShell()
	}
	if !strings.EqualFold(c.r.Header.Get("Upgrade"), "websocket") {
		return problem.New(problem.BadRequest, "this path is for WebSockets")
	}
	ws, err := websocket.Accept(c.w, c.r, nil)
	if err != nil {
		return nil // it was answered
	}
	defer func() { _ = ws.CloseNow() }() // it may be closed already
	ws.SetReadLimit(maxTerminalFrame)
	ctx, cancel := c.inside(math.MaxInt64)
	defer cancel()
	t := &terminal{ws: ws, ctx: ctx, cancel: cancel, events: make(chan pods.ExecEvent, 16)}
	r, w := io.Pipe()
	defer func() { _ = r.Close() }() // ends receive
	go t.receive(w)
	go t.ping()
	code, err := c.Pods.Exec(ctx, c.owner, pod, pods.Command{
		Argv: argv, Env: []string{"TERM=xterm-256color"}, TTY: true, Size: pods.WindowSize{Columns: uint16(columns), Rows: uint16(rows)},
	}, pods.Streams{Stdin: r, Stdout: t, Stderr: t, Events: t.events})
	t.end(code, ended(ctx, err, 0))
	return nil
}

// A terminal is the server's side of a WebSocket.
type terminal struct {
	ws     *websocket.Conn
	ctx    context.Context //nolint:containedctx // of one request
	cancel context.CancelFunc
	events chan pods.ExecEvent
}

// Write implements io.Writer.
func (t *terminal) Write(b []byte) (int, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), slowReader) // the end of a context would close the connection
	defer cancel()
	return len(b), t.ws.Write(ctx, websocket.MessageBinary, b)
}

// receive passes on what the client sends, until it closes.
func (t *terminal) receive(to *io.PipeWriter) {
	defer t.cancel()
	defer func() { _ = to.Close() }() // the command sees the end
	for {
		kind, data, err := t.ws.Read(context.WithoutCancel(t.ctx)) // podTerminal closes it
		if err != nil {
			return
		}
		if kind == websocket.MessageBinary {
			if _, err := to.Write(data); err != nil {
				return
			}
			continue
		}
		var size struct{ Columns, Rows uint16 }
		if json.Unmarshal(data, &size) == nil && size.Columns > 0 && size.Rows > 0 {
			select {
			case t.events <- pods.ExecEvent{Size: pods.WindowSize(size)}:
			case <-t.ctx.Done():
			}
		}
	}
}

// ping notices a client that has gone without a word.
func (t *terminal) ping() {
	tick := time.NewTicker(terminalPing)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), slowReader) // the end of a context would close the connection
			err := t.ws.Ping(ctx)
			cancel()
			if err != nil {
				t.cancel()
				return
			}
		case <-t.ctx.Done():
			return
		}
	}
}

// end tells the client how the command ended.
func (t *terminal) end(code int, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), slowReader)
	defer cancel()
	status, last := websocket.StatusNormalClosure, map[string]any{"exitCode": code}
	if err != nil {
		status, last = websocket.StatusPolicyViolation, map[string]any{"error": problem.Of(err).Detail}
	}
	data, wrong := json.Marshal(last)
	if wrong == nil && t.ws.Write(ctx, websocket.MessageText, data) == nil {
		_ = t.ws.Close(status, "") // the client may be gone
	}
}

// filesPath returns the path of a request for files.
func (c *call) filesPath() (string, error) {
	p, err := c.queryText("path")
	switch {
	case err != nil:
		return "", err
	case !path.IsAbs(p) || len(p) > 4096 || strings.ContainsRune(p, 0):
		return "", problem.New(problem.Invalid, "path: must be an absolute path")
	}
	return path.Clean(p), nil
}

// tarFailed is the error of a tar in a pod that has ended with a code.
func tarFailed(code int, said string) error {
	switch {
	case code == 127 || code == 126:
		return problem.New(problem.NotImplemented, "the image of this pod lacks tar, which copies files: install tar or busybox in it")
	case strings.Contains(said, "No such file") || strings.Contains(said, "can't open") || strings.Contains(said, "can't change directory"):
		return problem.Newf(problem.NotFound, "tar in the pod: %s", strings.TrimSpace(said))
	}
	return problem.Newf(problem.BadRequest, "tar in the pod ended with code %d: %s", code, strings.TrimSpace(said))
}

func getPodFiles(c *call) error {
	if err := c.podExists(); err != nil {
		return err
	}
	p, err := c.filesPath()
	if err != nil {
		return err
	}
	if p == "/" {
		return problem.New(problem.Invalid, "path: must not be the root of the pod")
	}
	pod, err := c.runningPod()
	if err != nil {
		return err
	}
	ctx, cancel := c.inside(maxFilesTime)
	defer cancel()
	said := &head{most: maxFilesError}
	out := &tarAnswer{c: c}
	code, err := c.Pods.Exec(ctx, c.owner, pod, pods.Command{Argv: []string{"tar", "-c", "-f", "-", "-C", path.Dir(p), "--", path.Base(p)}}, pods.Streams{Stdout: out, Stderr: said})
	if err == nil && code != 0 {
		err = tarFailed(code, said.text())
	}
	switch err = ended(ctx, err, maxFilesTime); {
	case err == nil:
		return out.begin()
	case out.n == 0:
		return err
	}
	c.log.Warn("files of a pod were not sent to their end", "pod", pod, "err", err)
	panic(http.ErrAbortHandler) // the client sees that it is not whole
}

// A tarAnswer is an answer that begins with its first byte.
// What tar writes where there is no such file is only zeros, the end of an archive: they wait for more.
type tarAnswer struct {
	c     *call
	n     int64
	zeros int
}

// Write implements io.Writer.
func (w *tarAnswer) Write(b []byte) (int, error) {
	if w.n == 0 && w.zeros+len(b) <= maxZeros && len(bytes.Trim(b, "\x00")) == 0 {
		w.zeros += len(b)
		return len(b), nil
	}
	if err := w.begin(); err != nil {
		return 0, err
	}
	if w.n += int64(len(b)); w.n > maxFilesBytes {
		return 0, problem.Newf(problem.TooLarge, "there are more than %d bytes", int64(maxFilesBytes))
	}
	return writeSteps(w.c.w, b)
}

// maxZeros is the size of the last record of an archive.
const maxZeros = 64 << 10

// begin sends what has waited.
func (w *tarAnswer) begin() error {
	zeros := make([]byte, w.zeros)
	w.zeros = 0
	w.c.w.Header().Set("Content-Type", "application/x-tar")
	n, err := writeSteps(w.c.w, zeros)
	w.n += int64(n)
	return err
}

func putPodFiles(c *call) error {
	if err := c.podExists(); err != nil {
		return err
	}
	p, err := c.filesPath()
	if err != nil {
		return err
	}
	pod, err := c.runningPod()
	if err != nil {
		return err
	}
	ctx, cancel := c.inside(maxFilesTime)
	defer cancel()
	r, w := io.Pipe()
	checked := make(chan error, 1)
	go func() {
		err := checkTar(&steadyBody{c: c}, w)
		_ = w.CloseWithError(err) // io.EOF for nil
		checked <- err
	}()
	said := &head{most: maxFilesError}
	code, err := c.Pods.Exec(ctx, c.owner, pod, pods.Command{Argv: []string{"tar", "-x", "-f", "-", "-C", p}}, pods.Streams{Stdin: r, Stdout: io.Discard, Stderr: said})
	_ = r.CloseWithError(io.ErrClosedPipe) // so that nothing waits for the command to read
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Now().Add(drainTimeout))
	wrong := <-checked
	switch {
	case wrong != nil && !errors.Is(wrong, io.ErrClosedPipe):
		c.w.Header().Set("Connection", "close")
		return wrong
	case err == nil && code != 0:
		err = tarFailed(code, said.text())
	}
	if err != nil {
		c.w.Header().Set("Connection", "close")
		return ended(ctx, err, maxFilesTime)
	}
	c.clearBodyDeadline()
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// A steadyBody is a body of any length that must go on arriving.
type steadyBody struct {
	c *call
	n int64
}

// Read implements io.Reader.
func (b *steadyBody) Read(to []byte) (int, error) {
	_ = http.NewResponseController(b.c.w).SetReadDeadline(time.Now().Add(slowReader)) // not every writer has deadlines
	n, err := b.c.r.Body.Read(to)
	if b.n += int64(n); b.n > maxFilesBytes {
		return n, b.c.tooLarge(maxFilesBytes)
	}
	return n, err
}

// checkTar copies an archive, and refuses one that the tar of a pod might take for more than files below
// its directory.
func checkTar(from io.Reader, to io.Writer) error {
	in, out := tar.NewReader(from), tar.NewWriter(to)
	links := newTarLinks()
	for n := 1; ; n++ {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out.Close()
		}
		if err != nil {
			return archiveError(err)
		}
		if n > maxFilesEntries {
			return problem.Newf(problem.TooLarge, "the archive has more than %d entries", maxFilesEntries)
		}
		if err := checkEntry(h, links); err != nil {
			return err
		}
		h.Mode &= 0o777 // not setuid and setgid
		h.Format = tar.FormatUnknown
		if err := out.WriteHeader(h); err != nil {
			return archiveError(err)
		}
		if _, err := io.Copy(out, in); err != nil { //nolint:gosec // steadyBody bounds it, and nothing is unpacked here
			return archiveError(err)
		}
	}
}

// archiveError is the error of an archive that cannot be read, unless it has one of its own.
func archiveError(err error) error {
	if problem.KindOf(err) != problem.Internal || errors.Is(err, io.ErrClosedPipe) {
		return err
	}
	return problem.New(problem.BadRequest, "the body is not a whole tar archive")
}

// tarLinks are the symbolic links of an archive. A link is kept as a hash, because its name may be long and
// there may be a million of them.
type tarLinks struct {
	seed maphash.Seed
	has  map[uint64]struct{}
}

func newTarLinks() *tarLinks { return &tarLinks{maphash.MakeSeed(), map[uint64]struct{}{}} }

func (l *tarLinks) add(name string) { l.has[maphash.String(l.seed, name)] = struct{}{} }

func (l *tarLinks) is(name string) bool {
	_, ok := l.has[maphash.String(l.seed, name)]
	return ok
}

// leadThrough reports whether a directory of a clean name is a link.
func (l *tarLinks) leadThrough(name string) bool {
	if len(l.has) == 0 {
		return false
	}
	for i := range len(name) {
		if name[i] == '/' && l.is(name[:i]) {
			return true
		}
	}
	return false
}

// isSparse reports whether an entry has holes, which the reader fills: a few bytes would be any number of them.
func isSparse(h *tar.Header) bool {
	for name := range h.PAXRecords {
		if strings.HasPrefix(name, "GNU.sparse.") {
			return true
		}
	}
	return h.Typeflag == tar.TypeGNUSparse
}

// checkEntry refuses an entry that leads elsewhere. links are the links before it.
func checkEntry(h *tar.Header, links *tarLinks) error {
	refuse := func(why string) error {
		return problem.Newf(problem.Invalid, "the entry %.200q of the archive %s", h.Name, why)
	}
	if len(h.Name) > maxFilesName || len(h.Linkname) > maxFilesName {
		return refuse(fmt.Sprintf("has a name or a target of more than %d bytes", maxFilesName))
	}
	name := path.Clean(h.Name)
	switch {
	case h.Name == "" || path.IsAbs(h.Name) || name == ".." || strings.HasPrefix(name, "../"):
		return refuse("leads out of its directory")
	case strings.ContainsRune(h.Name, 0) || strings.ContainsRune(h.Linkname, 0):
		return refuse("has a zero byte in its name")
	case isSparse(h):
		return refuse("is a sparse file, which is larger than the archive")
	case links.leadThrough(name):
		return refuse("goes through a link of the archive")
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir:
		if links.is(name) {
			return refuse("goes through a link of the archive")
		}
	case tar.TypeSymlink:
		links.add(name)
	case tar.TypeLink:
		target := path.Clean(h.Linkname)
		if path.IsAbs(h.Linkname) || target == ".." || strings.HasPrefix(target, "../") || links.is(target) || links.leadThrough(target) {
			return refuse("is a link out of its directory")
		}
	default:
		return refuse("is no file, directory or link")
	}
	return nil
}
