package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
)

// parseSecret reads "whsec_" and base64.
func parseSecret(s string) ([]byte, error) {
	text, ok := strings.CutPrefix(s, "whsec_")
	if !ok {
		return nil, errors.New("must begin with whsec_")
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errors.New("must be base64 after whsec_")
	}
	if len(b) < 24 || len(b) > 64 {
		return nil, errors.New("must be 24 to 64 bytes")
	}
	return b, nil
}

// sign sets the headers of the Standard Webhooks scheme: an HMAC-SHA256 over id, time and
// body for each secret, the current one first.
func (s *Sender) sign(h http.Header, id string, body []byte) {
	if len(s.secrets) == 0 {
		return
	}
	at := strconv.FormatInt(s.clock.Now().Unix(), 10)
	sigs := make([]string, 0, len(s.secrets))
	for _, secret := range s.secrets {
		sigs = append(sigs, "v1,"+base64.StdEncoding.EncodeToString(mac(secret, id, at, body)))
	}
	h.Set("Webhook-Timestamp", at)
	h.Set("Webhook-Signature", strings.Join(sigs, " "))
}

func mac(secret []byte, id, at string, body []byte) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte(id + "." + at + "."))
	m.Write(body)
	return m.Sum(nil)
}
