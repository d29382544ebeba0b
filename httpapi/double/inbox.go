package double

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Delivered is one attempt to deliver a webhook, as the product sent it.
type Delivered struct {
	Seq      int             `json:"seq"`
	At       time.Time       `json:"at"`
	URL      string          `json:"url"` // without user, password and values of the query
	Endpoint string          `json:"endpoint"`
	Job      string          `json:"job"`
	Header   http.Header     `json:"header"`
	Body     json.RawMessage `json:"body"`
	// Signature is the fault of the signature; empty: it is valid.
	Signature string `json:"signature,omitempty"`
	Status    int    `json:"status,omitempty"` // of the receiver's answer; 0: there was none
	Error     string `json:"error,omitempty"`
	Fault     string `json:"fault,omitempty"`

	target string // the URL without redaction
}

// An inbox receives every webhook instead of the network.
type inbox struct {
	faults *faults
	jobs   *jobLog
	now    func() time.Time
	secret string
	next   http.RoundTripper // nil: the inbox answers 200 itself
	// retired is closed when nothing waits for answers any more.
	retired <-chan struct{}

	mu   sync.Mutex
	seq  int
	list []Delivered
}

// RoundTrip records the request, and answers it or passes it to the receiver.
func (b *inbox) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var job struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(body, &job) // the product made it, so it is valid
	d := Delivered{
		At: b.now(), URL: redactURL(r.URL.String()), target: r.URL.String(), Endpoint: b.jobs.endpointOf(job.ID), Job: job.ID,
		Header: redactHeader(r.Header), Body: redactWebhook(body),
	}
	if err := VerifyWebhook(b.secret, d.At, r.Header, body); err != nil {
		d.Signature = err.Error()
	}
	res, err := b.answer(r, body, &d)
	if err != nil {
		d.Error = err.Error()
	} else {
		d.Status = res.StatusCode
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seq++
	d.Seq = b.seq
	b.list = append(b.list, d)
	if n := len(b.list); n > entriesKept {
		b.list = append([]Delivered(nil), b.list[n-entriesKept:]...)
	}
	return res, err
}

// redactWebhook hides in the body of a webhook what redactURL hides in its URL, and leaves everything
// else byte for byte.
func redactWebhook(body []byte) []byte {
	var job struct {
		Webhook json.RawMessage `json:"webhook"`
	}
	var url string
	if json.Unmarshal(body, &job) != nil || json.Unmarshal(job.Webhook, &url) != nil {
		return body
	}
	hidden, err := json.Marshal(redactURL(url))
	member := append([]byte(`,"webhook":`), job.Webhook...)
	at := bytes.LastIndex(body, member) // the output, which may look the same, comes before it
	if err != nil || at < 0 {
		return body
	}
	return slices.Concat(body[:at+len(member)-len(job.Webhook)], hidden, body[at+len(member):])
}

// faultsOfWebhooks are the names of faults that apply here.
var faultsOfWebhooks = [...]string{FaultWebhookDown, FaultWebhookStatus, FaultWebhookLost}

func (b *inbox) answer(r *http.Request, body []byte, d *Delivered) (*http.Response, error) {
	f := b.faults.hit(func(f *Fault) bool {
		return slices.Contains(faultsOfWebhooks[:], f.Name) && (f.Endpoint == "" || f.Endpoint == d.Endpoint)
	})
	status := http.StatusOK
	switch {
	case f == nil && b.next != nil:
		return b.pass(r, body)
	case f == nil:
	case f.Name == FaultWebhookDown:
		d.Fault = f.Name
		return nil, syscall.ECONNREFUSED
	case f.Name == FaultWebhookLost:
		d.Fault = f.Name
		if b.next != nil {
			if res, err := b.pass(r, body); err == nil {
				_ = res.Body.Close()
			}
		}
		return nil, syscall.ECONNRESET
	default:
		d.Fault, status = f.Name, cmp.Or(f.Status, http.StatusInternalServerError)
	}
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody, Request: r,
	}, nil
}

// pass sends the request to the real receiver.
func (b *inbox) pass(r *http.Request, body []byte) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-b.retired:
			cancel()
		case <-stop:
		}
	}()
	r = r.Clone(ctx)
	r.Body = io.NopCloser(bytes.NewReader(body))
	res, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	// Read it here: the end of ctx would cut it off.
	answer, err := io.ReadAll(io.LimitReader(res.Body, bodyKept))
	_ = res.Body.Close()
	res.Body = io.NopCloser(bytes.NewReader(answer))
	return res, err
}

func (b *inbox) all() []Delivered {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]Delivered(nil), b.list...)
}

func (b *inbox) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = nil
}

// endpointOf finds the endpoint of a job by its id.
func (l *jobLog) endpointOf(id string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, v := range slices.Backward(l.list) {
		if v.ID == id {
			return v.Endpoint
		}
	}
	return ""
}

// WebhookTolerance is how far the timestamp of a webhook may be from the time at which it
// is received, before it or after it.
const WebhookTolerance = 5 * time.Minute

// VerifyWebhook checks the signature and the timestamp of a webhook by the Standard
// Webhooks scheme, as a receiver does at now: secret is "whsec_" and base64. Webhooks of a
// double have the time of its clock (Server.Now).
func VerifyWebhook(secret string, now time.Time, h http.Header, body []byte) error {
	text, ok := strings.CutPrefix(secret, "whsec_")
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil {
		return errors.New("the secret is not whsec_ and base64")
	}
	id, at, sigs := h.Get("Webhook-Id"), h.Get("Webhook-Timestamp"), h.Get("Webhook-Signature")
	if id == "" || at == "" || sigs == "" {
		return errors.New("it is not signed: Webhook-Id, Webhook-Timestamp or Webhook-Signature is missing")
	}
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return errors.New("Webhook-Timestamp is not a number of seconds")
	}
	// In whole seconds, like the timestamp.
	switch d := now.Unix() - seconds; {
	case d > int64(WebhookTolerance/time.Second):
		return fmt.Errorf("Webhook-Timestamp is more than %v in the past: it may be a replay", WebhookTolerance)
	case d < -int64(WebhookTolerance/time.Second):
		return fmt.Errorf("Webhook-Timestamp is more than %v in the future", WebhookTolerance)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + at + "."))
	mac.Write(body)
	want := mac.Sum(nil)
	for sig := range strings.FieldsSeq(sigs) {
		if b64, ok := strings.CutPrefix(sig, "v1,"); ok {
			if got, err := base64.StdEncoding.DecodeString(b64); err == nil && hmac.Equal(got, want) {
				return nil
			}
		}
	}
	return errors.New("no signature in Webhook-Signature is the one of this secret and body")
}
