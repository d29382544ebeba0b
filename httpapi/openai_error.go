package httpapi

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/podyard/podyard/serverless"
)

// openaiError is the body of an error in OpenAI's form.
func openaiError(status int, text string) []byte {
	kind := "invalid_request_error"
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		kind = "authentication_error"
	case status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case status >= http.StatusInternalServerError:
		kind = "server_error"
	}
	var body struct {
		Error struct {
			Message string  `json:"message"`
			Type    string  `json:"type"`
			Param   *string `json:"param"`
			Code    *string `json:"code"`
		} `json:"error"`
	}
	body.Error.Message, body.Error.Type = text, kind
	b, err := json.Marshal(body)
	if err != nil {
		return []byte(`{"error":{"message":"internal error"}}`) // impossible: it has only strings
	}
	return b
}

// openaiStatus is the status of the answer for a job that has ended without a result.
func openaiStatus(s serverless.Status) int {
	switch s {
	case serverless.Cancelled:
		return http.StatusConflict // the caller, or who may do as much, has cancelled it: nothing is wrong here
	case serverless.TimedOut:
		return http.StatusGatewayTimeout
	default:
		return http.StatusInternalServerError
	}
}

// errorStatus is the status that a worker's error names as an integer code, if that is the status of
// an error. Otherwise it is def.
func errorStatus(said jsontext.Value, def int) int {
	var o struct{ Code json.RawMessage }
	if json.Unmarshal(said, &o) != nil {
		return def
	}
	if n, err := strconv.Atoi(string(o.Code)); err == nil && 400 <= n && n <= 599 {
		return n
	}
	return def
}

// workerError returns the error that a worker wrote in OpenAI's form, or nil. A
// worker yields {"error":{"message":...}}; the Python SDK turns that into the error of the job,
// in Python's notation.
func workerError(text string) jsontext.Value {
	v, ok := fromPython(text)
	if !ok {
		return nil
	}
	var o struct{ Message *string }
	if json.Unmarshal(v, &o) != nil || o.Message == nil {
		return nil
	}
	return v
}

// fromPython converts a Python dict with values that JSON has, and leaves JSON as it is.
func fromPython(s string) (v jsontext.Value, ok bool) {
	if !strings.HasPrefix(s, "{") {
		return nil, false
	}
	if v := jsontext.Value(s); v.IsValid() {
		return v, true
	}
	for s != "" {
		n := strings.IndexAny(s, `'"NTF`) // where a string or a constant begins
		if n < 0 {
			n = len(s)
		}
		v, s = append(v, s[:n]...), s[n:]
		if s == "" {
			break
		}
		if v, s, ok = appendPython(v, s); !ok {
			return nil, false
		}
	}
	return v, v.IsValid()
}

// appendPython appends the string or constant at the beginning of s as JSON.
func appendPython(v jsontext.Value, s string) (_ jsontext.Value, rest string, ok bool) {
	if s[0] != '\'' && s[0] != '"' {
		word, rest, ok := pythonConstant(s)
		return append(v, word...), rest, ok
	}
	text, rest, ok := pythonString(s)
	if !ok {
		return nil, "", false
	}
	v, err := jsontext.AppendQuote(v, text)
	return v, rest, err == nil
}

func pythonConstant(s string) (word, rest string, ok bool) {
	for _, c := range [...][2]string{{"None", "null"}, {"True", "true"}, {"False", "false"}} {
		if rest, ok := strings.CutPrefix(s, c[0]); ok {
			return c[1], rest, true
		}
	}
	return "", "", false
}

// pythonString reads the string at the beginning of s.
func pythonString(s string) (text, rest string, ok bool) {
	quote := s[0]
	var b []byte
	for s = s[1:]; s != ""; {
		switch {
		case s[0] == quote:
			return string(b), s[1:], true
		case s[0] == '\\' && len(s) > 1 && (s[1] == '\'' || s[1] == '"'):
			b, s = append(b, s[1]), s[2:]
		case s[0] == '\\':
			// All other escapes are as in Go. Bytes above 127 are code points.
			r, _, tail, err := strconv.UnquoteChar(s, 0)
			if err != nil {
				return "", "", false
			}
			b, s = utf8.AppendRune(b, r), tail
		default:
			b, s = append(b, s[0]), s[1:]
		}
	}
	return "", "", false
}
