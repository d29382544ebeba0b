package httpapi

import (
	"errors"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// written calls f with a list, and returns the answer, the log, and how the handler has ended.
func written(t *testing.T, f func(c *call, l *listWriter) error) (body, log string, aborted bool, err error) {
	t.Helper()
	var b strings.Builder
	a := httptest.NewRecorder()
	x := newAPI(Services{}, &Options{Logger: slog.New(slog.NewTextHandler(&b, nil))}).router(APIControl)
	c := &call{router: x, w: a, r: httptest.NewRequest(http.MethodGet, "/v2/pods", nil)}
	func() {
		defer func() {
			if p := recover(); p != nil {
				aborted = p == http.ErrAbortHandler
			}
		}()
		err = f(c, c.list("pods"))
	}()
	return a.Body.String(), b.String(), aborted, err
}

// JSON has no NaN.
func unwritable() any { return map[string]float64{"util": math.NaN()} }

func TestAListWithAnItemThatCannotBeEncodedIsNoAnswer(t *testing.T) {
	body, _, aborted, err := written(t, func(_ *call, l *listWriter) error {
		for _, v := range []any{1, unwritable(), 3} {
			if l.next(""); !l.addJSON(v) {
				return l.stopped()
			}
		}
		l.end(nil)
		return nil
	})
	if err == nil || body != "" || aborted {
		t.Errorf("the answer is %q, err %v, aborted %t; want an error and nothing written", body, err, aborted)
	}
}

func TestAListThatHasBegunIsAbortedAndLoggedWhenItCannotGoOn(t *testing.T) {
	large := strings.Repeat("x", largeAnswer)
	for name, last := range map[string]func(l *listWriter) error{
		"an item": func(l *listWriter) error {
			l.next("")
			l.addJSON(unwritable())
			return l.stopped()
		},
		"the end": func(l *listWriter) error { return l.endWith(unwritable()) },
	} {
		body, log, aborted, err := written(t, func(_ *call, l *listWriter) error {
			if l.next(""); !l.addJSON(large) {
				return errors.New("the first item was refused")
			}
			return last(l)
		})
		if !aborted || err != nil || !strings.HasPrefix(body, `{"pods":["xx`) || !strings.Contains(log, "a list ended early") || !strings.Contains(log, "NaN") {
			t.Errorf("%s: aborted %t, err %v, %d bytes, log %q; want an abort that is logged", name, aborted, err, len(body), log)
		}
	}
}

func TestAListOfRecordsWithOneThatCannotBeEncodedFails(t *testing.T) {
	body, _, _, err := written(t, func(c *call, _ *listWriter) error {
		c.named = true // by an operator: each item has its owner
		return writeList(c, "pods", []int{1, 2}, func(int) string { return "alice" }, func(n int) any {
			if n == 2 {
				return unwritable()
			}
			return n
		})
	})
	if err == nil || body != "" {
		t.Errorf("the answer is %q, err %v; want an error and nothing written", body, err)
	}
}
