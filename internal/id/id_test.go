package id_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/podyard/podyard/internal/id"
)

func TestEveryLetterIsAsLikelyAsTheOthers(t *testing.T) {
	r := rand.NewChaCha8([32]byte{7})
	count := map[byte]int{}
	const ids = 10000
	for range ids {
		s, err := id.New(r)
		if err != nil || len(s) != 14 {
			t.Fatalf("New = %q, %v, want 14 characters", s, err)
		}
		for _, c := range []byte(s) {
			count[c]++
		}
	}
	// Five standard deviations around the mean; the seed is fixed.
	const mean, slack = ids * 14 / 36, 310
	for _, c := range []byte("0123456789abcdefghijklmnopqrstuvwxyz") {
		if n := count[c]; n < mean-slack || n > mean+slack {
			t.Errorf("%q occurs %d times in %d letters, want about %d", c, n, ids*14, mean)
		}
		delete(count, c)
	}
	if len(count) > 0 {
		t.Errorf("ids have other characters: %v", count)
	}
}

func TestBytesThatWouldFavourALetterAreSkipped(t *testing.T) {
	got, err := id.New(io.MultiReader(bytes.NewReader(bytes.Repeat([]byte{252}, 28)), bytes.NewReader(make([]byte, 28))))
	if want := "00000000000000"; got != want || err != nil {
		t.Errorf("New = %q, %v, want %q", got, err, want)
	}
}

func TestReaderWithoutUseIsAnError(t *testing.T) {
	if got, err := id.New(bytes.NewReader(bytes.Repeat([]byte{255}, 1<<10))); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("New = %q, %v, want an error before the reader ends", got, err)
	}
}

func TestReaderThatEndsIsAnError(t *testing.T) {
	if got, err := id.New(bytes.NewReader(make([]byte, 27))); err == nil {
		t.Errorf("New = %q, nil, want the reader's error", got)
	}
}
