// Package signin is the shop's own sign-in, which it had before it had a queue: a cookie with the name of
// the customer and the end of the session, signed with a secret that all copies of the shop have.
package signin

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A SignIn knows who has signed in.
type SignIn struct{ secret []byte }

const (
	cookie  = "session"
	session = 12 * time.Hour
)

// New returns a SignIn whose cookies are signed with secret.
func New(secret string) (*SignIn, error) {
	if len(secret) < 32 {
		return nil, errors.New("the secret of the sign-in must have 32 bytes or more: openssl rand -hex 16 makes one")
	}
	return &SignIn{[]byte(secret)}, nil
}

// Login answers POST /login with a cookie.
func (s *SignIn) Login(w http.ResponseWriter, r *http.Request) {
	name, password, _ := r.BasicAuth() // stands for a form and a table of customers
	if name == "" || strings.Contains(name, ".") || password != "correct horse" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookie, Value: s.sign(fmt.Sprintf("%s.%d", name, time.Now().Add(session).Unix())),
		Path: "/", HttpOnly: true, Secure: true, SameSite: http.SameSiteStrictMode,
	})
}

func (s *SignIn) sign(text string) string {
	mac := hmac.New(sha256.New, s.secret)
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Customer returns whom a value of the cookie names.
func (s *SignIn) Customer(value string) (name string, ok bool) {
	parts := strings.Split(value, ".")
	if len(parts) != 3 || !hmac.Equal([]byte(value), []byte(s.sign(parts[0]+"."+parts[1]))) {
		return "", false
	}
	end, err := strconv.ParseInt(parts[1], 10, 64)
	return parts[0], err == nil && time.Now().Unix() < end
}

// Session returns the value of the cookie of a request, if it is good.
func (s *SignIn) Session(r *http.Request) (value string, ok bool) {
	c, err := r.Cookie(cookie)
	if err != nil {
		return "", false
	}
	_, ok = s.Customer(c.Value)
	return c.Value, ok
}

// Only serves a page to customers who have signed in.
func (s *SignIn) Only(page func(w http.ResponseWriter, r *http.Request, customer string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		value, ok := s.Session(r)
		if !ok {
			http.Error(w, "sign in first: POST /login", http.StatusUnauthorized)
			return
		}
		customer, _ := s.Customer(value)
		page(w, r, customer)
	}
}
