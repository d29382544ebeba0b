package terminal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/podyard/podyard/internal/terminal"
)

// hostile has what terminals act on: ESC, CSI as one character, DEL, NUL, bell, and characters that
// turn the direction of text.
const hostile = "a\x1b[2J\u009b31m\x7f\x00\a\r\u202eb\u2066c\u200bd"

func TestNothingOfATextOfOthersActsOnATerminal(t *testing.T) {
	if got := terminal.Clean(hostile); strings.ContainsFunc(got, terminal.IsCommand) || utf8.RuneCountInString(got) != utf8.RuneCountInString(hostile) {
		t.Errorf("Clean = %q", got)
	}
	if got := terminal.Clean("größe ✓ 漢字 e\u0301"); got != "größe ✓ 漢字 e\u0301" {
		t.Errorf("Clean changes what is shown: %q", got)
	}
}

func TestAJSONDocumentMeansTheSameWhenItIsEscaped(t *testing.T) {
	var b bytes.Buffer
	log := slog.New(slog.NewJSONHandler(terminal.JSON(&b), nil))
	log.Info("x", "endpoint", hostile)
	if line := strings.TrimSuffix(b.String(), "\n"); strings.ContainsFunc(line, terminal.IsCommand) {
		t.Errorf("the line is %q", line)
	}
	var got struct{ Endpoint string }
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || got.Endpoint != hostile {
		t.Errorf("the line has %q, %v, want %q", got.Endpoint, err, hostile)
	}
	if plain := []byte(`{"a":"ü"}` + "\n"); string(terminal.EscapeJSON(plain)) != string(plain) {
		t.Errorf("EscapeJSON changes %s", plain)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestAWriterOfEscapedJSONSaysHowMuchItTook(t *testing.T) {
	if n, err := terminal.JSON(new(bytes.Buffer)).Write([]byte("\"\u009b\"")); n != 4 || err != nil {
		t.Errorf("Write = %d, %v, want all 4 bytes", n, err)
	}
	if n, err := terminal.JSON(full{}).Write([]byte(`""`)); n != 0 || err == nil {
		t.Errorf("Write to a full disk = %d, %v", n, err)
	}
}
