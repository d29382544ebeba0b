package console_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"
)

func TestASimpleCronExpressionIsInWordsAndAnyOtherIsNot(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		if os.Getenv("PODYARD_CI") == "1" {
			t.Fatal("there is no node")
		}
		t.Skip("there is no node")
	}
	words := map[string]string{
		"* * * * *": "every minute", "*/5 * * * *": "every 5 minutes", "*/1 * * * *": "every minute", "0 * * * *": "every hour", "15 * * * *": "every hour, 15 min past",
		"0 */6 * * *": "every 6 hours", "30 */2 * * *": "every 2 hours, 30 min past", "0 3 * * *": "every day at 03:00", " 05  23 * *  * ": "every day at 23:05",
		"30 6 * * MON-FRI": "Monday to Friday at 06:30", "30 6 * * 1-5": "Monday to Friday at 06:30", "0 0 * * sun": "every Sunday at 00:00", "0 0 * * 7": "every Sunday at 00:00",
		"0 12 1 * *": "on day 1 of every month at 12:00",
		// The distance between the last one of an hour or a day and the next one is another.
		"*/7 * * * *": "", "0 */5 * * *": "", "*/60 * * * *": "",
		// Both days count, or several.
		"0 0 1 * MON": "", "0 3 * 2 *": "", "0,30 * * * *": "", "0 8-18 * * *": "", "*/5 3 * * *": "", "0 3 * * 1,3": "", "0 3 * * MON#1": "", "0 3 L * *": "",
		"60 3 * * *": "", "0 24 * * *": "", "0 3 32 * *": "", "0 3 * * 8": "", "": "", "@daily": "", "0 3 * *": "", "*/0 * * * *": "", "0 0 3 * * *": "",
	}
	in, err := json.Marshal(words)
	if err != nil {
		t.Fatal(err)
	}
	const script = `import {inWords} from './assets/cron.mjs'
const of = JSON.parse(process.argv[1])
console.log(JSON.stringify(Object.fromEntries(Object.keys(of).map(k => [k, inWords(k) || '']))))`
	out, err := exec.CommandContext(t.Context(), node, "--input-type=module", "-e", script, string(in)).CombinedOutput()
	got := map[string]string{}
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for expression, want := range words {
		if got[expression] != want {
			t.Errorf("%q is %q in words, want %q", expression, got[expression], want)
		}
	}
}
