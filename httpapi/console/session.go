package console

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/podyard/podyard/httpapi"
)

// Times of a session.
const (
	idleTime  = 30 * time.Minute // from the last act of the user
	totalTime = 12 * time.Hour
	renewTime = time.Minute // a younger cookie is not made again
)

// maxKey is the longest key of a session, in bytes: a cookie has 4096.
const maxKey = 2048

// A session is what its cookie says.
type session struct {
	ID    string    `json:"id"`
	Key   string    `json:"key"`
	Begun time.Time `json:"begun"`
	Seen  time.Time `json:"seen"` // the last act of the user

	who httpapi.Identity // of Key, as a request began: see answered
}

// A sealer encrypts sessions. Who does not have the secret can neither read nor change one.
type sealer struct {
	aead cipher.AEAD
	path []byte
}

func newSealer(secret []byte, path string) (*sealer, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, "podyard console session 1", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return &sealer{aead, []byte(path)}, err
}

func (x *sealer) seal(s *session) (string, error) {
	plain, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(x.aead.Seal(nil, nil, plain, x.path)), nil //nolint:gosec // Seal makes a random nonce itself
}

var errSealed = errors.New("console: not a session of this server")

func (x *sealer) open(value string) (*session, error) {
	sealed, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil {
		return nil, errSealed
	}
	plain, err := x.aead.Open(nil, nil, sealed, x.path)
	if err != nil {
		return nil, errSealed
	}
	s := new(session)
	if err := json.Unmarshal(plain, s); err != nil {
		return nil, errSealed
	}
	return s, nil
}

// cookieName is __Host- where the console has the whole host, and __Secure- where the cookie
// is of one path only, so that nothing else on the host gets it.
func (c *Console) cookieName() string {
	if c.Path == "/" {
		return "__Host-podyard"
	}
	return "__Secure-podyard"
}

func (c *Console) setCookie(w http.ResponseWriter, value string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name: c.cookieName(), Value: value, Path: c.Path, MaxAge: age,
		Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
}

// begin starts a session for a key that is good.
func (c *Console) begin(w http.ResponseWriter, key string) (*session, error) {
	now := c.Clock.Now()
	s := &session{ID: rand.Text(), Key: key, Begun: now, Seen: now}
	return s, c.write(w, s)
}

func (c *Console) write(w http.ResponseWriter, s *session) error {
	value, err := c.seal.seal(s)
	if err == nil {
		c.setCookie(w, value, int(totalTime.Seconds()))
	}
	return err
}

// alive reports whether a session has not ended.
func (c *Console) alive(s *session) bool {
	now := c.Clock.Now()
	return now.Before(s.Seen.Add(idleTime)) && now.Before(s.Begun.Add(totalTime)) && !c.ended.has(s.ID)
}

// session returns the session of a request, or nil.
func (c *Console) session(r *http.Request) *session {
	if c.Identify != nil {
		if key, ok := c.Identify(r); ok {
			return &session{Key: key}
		}
		return nil
	}
	cookie, err := r.Cookie(c.cookieName())
	if err != nil {
		return nil
	}
	s, err := c.seal.open(cookie.Value)
	if err != nil || !c.alive(s) {
		return nil
	}
	return s
}

// autoHeader marks a request that a page makes without an act of its user. It does not make a
// session longer.
const autoHeader = "Podyard-Auto"

// renew makes the cookie anew after an act of the user.
func (c *Console) renew(w http.ResponseWriter, r *http.Request, s *session) {
	now := c.Clock.Now()
	if c.Identify != nil || r.Header.Get(autoHeader) != "" || now.Sub(s.Seen) < renewTime {
		return
	}
	s.Seen = now
	if err := c.write(w, s); err != nil {
		c.Logger.ErrorContext(r.Context(), "console: session is not renewed", "err", err)
	}
}

// answered serves requests with a session whose answers the console makes itself. What it writes and
// holds counts for the user of the session, as the answers of the API do. Answers of the API that are
// passed on count there.
func (c *Console) answered(do func(*httpapi.Answer, *http.Request, *session)) http.HandlerFunc {
	return c.signedIn(func(w http.ResponseWriter, r *http.Request, s *session) {
		var err error
		if s.who, err = c.Auth.Authenticate(r.Context(), s.Key); err != nil {
			c.forget(w, err)
			return
		}
		if err := httpapi.AcceptKey(r.Context(), s.who); err != nil {
			w.Header().Set("Connection", "close")
			w.Header().Set("Retry-After", "1")
			refuse(w, err)
			return
		}
		a := httpapi.NewAnswer(w, c.InFlight, s.who)
		defer a.Release()
		do(a, r.WithContext(a.Within(r.Context())), s)
	})
}

// inTurn makes answers of one user wait for one another: each may be much larger than its request.
func inTurn(do func(*httpapi.Answer, *http.Request, *session)) func(*httpapi.Answer, *http.Request, *session) {
	return func(w *httpapi.Answer, r *http.Request, s *session) {
		if err := w.Turn(r.Context()); err != nil {
			refuse(w, err)
			return
		}
		do(w, r, s)
	}
}

// signedIn serves requests with a session.
func (c *Console) signedIn(do func(w http.ResponseWriter, r *http.Request, s *session)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s := c.session(r)
		if s == nil {
			refuse(w, errNoSession)
			return
		}
		c.renew(w, r, s)
		do(w, r, s)
	}
}
