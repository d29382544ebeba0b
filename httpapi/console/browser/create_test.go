package browser

import (
	"encoding/json"
	"strings"
	"testing"
)

// The forms have the fields of the description of the API, and say what it refuses where it is.
func TestRecordsAreCreatedByForms(t *testing.T) {
	w, b := start(t, setup{}), browse(t)
	b.size(1280, 900)
	b.signIn(w, adminKey)
	b.goes(w, "pods")
	b.press("New pod…")
	b.until(`document.querySelector('dialog input[name=name]')`)
	b.both(w, "new-pod", "", "More settings")
	b.size(1280, 900)
	b.fill("dialog input[name=name]", "notebook")
	b.fill("dialog input[name=image]", "acme/jupyter:2")
	eval[bool](b, `(document.querySelector('dialog [name="cpu.id"]').closest('details').open = true)`)
	b.fill(`dialog input[name='cpu.id']`, "cpu3c")
	b.fill(`dialog input[name='cpu.vcpuCount']`, "3")
	b.fill("dialog textarea[name=env]", "MODEL=sdxl\nKEY=a=b")
	b.press("Create the pod")
	b.sees("/cpu/vcpuCount: must be a power of two")
	b.until(`(document.querySelector('dialog [name="cpu.vcpuCount"]').select(), true)`)
	b.fill(`dialog input[name='cpu.vcpuCount']`, "2")
	b.press("Create the pod")
	b.until(`/\/pods\/\w+$/.test(location.pathname)`)
	b.sees("Show values")
	var list struct {
		Pods []struct {
			Name string
			Env  map[string]string
		}
	}
	check(t, json.Unmarshal(w.call("GET", "/v2/pods", ""), &list))
	if len(list.Pods) != 1 || list.Pods[0].Name != "notebook" || list.Pods[0].Env["KEY"] != "a=b" || list.Pods[0].Env["MODEL"] != "sdxl" {
		t.Errorf("the pods are %+v", list.Pods)
	}

	b.goes(w, "")
	b.press("New endpoint…")
	b.until(`document.querySelector('dialog input[name=name]')`)
	b.fill("dialog input[name=name]", "captions")
	b.fill("dialog input[name=image]", "acme/captions:4")
	eval[bool](b, `(document.querySelector('dialog [name="gpu.pools"]').closest('details').open = true)`)
	b.fill(`dialog textarea[name='gpu.pools']`, "ADA_24")
	b.press("Create the endpoint")
	b.sees("captions")
	b.until(`/\/e\/\w+$/.test(location.pathname)`)

	// A job's input stays as it was written.
	b.goes(w, "e/echo/jobs")
	b.press("Submit a job…")
	b.until(`document.querySelector('dialog textarea[name=input]')`)
	eval[bool](b, `(document.querySelector('dialog textarea[name=input]').select(), true)`)
	b.fill("dialog textarea[name=input]", `{"big":9223372036854775809,"e":1e400`)
	b.press("Submit the job")
	b.sees("input: ")
	b.fill("dialog textarea[name=input]", `}`)
	b.press("Submit the job")
	b.sees("9223372036854775809")
	b.sees("1e400")

	b.goes(w, "e/echo/schedules")
	b.press("New schedule…")
	b.until(`document.querySelector('dialog input[name=cron]')`)
	b.fill("dialog input[name=cron]", "0 4 * * *")
	b.fill("dialog input[name=timeZone]", "Europe/Berlin")
	b.press("Create the schedule")
	b.sees("Europe/Berlin")
	b.sees("every day at 04:00")
	b.until(`/ 20\d\d, 04:00/.test(document.querySelector('.grid, table')?.textContent || document.body.textContent)`) // the next one, in the zone of the schedule
	b.until(`/\/schedules\/\w+/.test(location.pathname)`)
	b.wantNoFaults()
}

// Who may not create something has no button for it, and a secret is made without its value being shown.
func TestASecretIsMadeAndNeverShown(t *testing.T) {
	w, b := start(t, setup{}), browse(t)
	b.signIn(w, adminKey)
	b.goes(w, "secrets")
	b.press("New secret…")
	b.until(`document.querySelector('dialog input[name=value]')?.type === 'password'`)
	b.fill("dialog input[name=name]", "HF_TOKEN")
	b.fill("dialog input[name=value]", "a-value-that-is-hidden")
	b.press("Create the secret")
	b.sees("HF_TOKEN")
	if text := eval[string](b, `document.documentElement.outerHTML`); strings.Contains(text, "a-value-that-is-hidden") {
		t.Error("the value of a secret is in the page")
	}
	b.press("Delete…")
	b.press("Delete")
	b.sees("There are no secrets.")
	b.press("Sign out")
	b.sees("Sign in with a key")
	b.signIn(w, readerKey)
	b.goes(w, "pods")
	b.sees("There are no pods")
	if eval[bool](b, `document.body.innerText.includes('New pod') || [...document.querySelectorAll('nav a')].some(x => ['Users', 'Hosts'].includes(x.textContent))`) {
		t.Error("a key that may only read has a button to create, or pages of operators")
	}
	b.goes(w, "secrets")
	b.sees("does not allow this")
	b.wantNoFaults()
}

// An operator sees what a user has, and erases the jobs.
func TestAUserHasAPageWithWhatTheUserHasAndActs(t *testing.T) {
	w, b := start(t, setup{}), browse(t)
	w.call("POST", "/v2/account/keys", `{"user":"bob","scopes":["pods:read"]}`)
	b.signIn(w, adminKey)
	b.goes(w, "users")
	b.press("bob")
	b.sees("The user has no pods.")
	b.sees("The user has no endpoints.")
	b.press("Delete…")
	b.press("Delete")
	b.sees("The user has no keys that were made over the interface.")
	b.press("Erase jobs…")
	b.fill("dialog input", "bob")
	b.press("Erase the jobs")
	b.sees("Erased: nothing.")
	b.press("Audit log")
	b.until(`location.search === '?user=bob'`)
	b.sees("Audit log")
	b.wantNoFaults()
}
