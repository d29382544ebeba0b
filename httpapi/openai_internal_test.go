package httpapi

import "testing"

func TestAnErrorThatAWorkerPutInOpenAIsFormKeepsIt(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, want string }{
		{`{'message': 'out of order', 'type': 'worker_error', 'code': None}`, `{"message": "out of order", "type": "worker_error", "code": null}`},
		{`{'message': "it's \"odd\"", 'n': [1, -2.5, True, False]}`, `{"message": "it's \"odd\"", "n": [1, -2.5, true, false]}`},
		{`{'message': 'a\tb\\c\nd \xe4 \u20ac \U0001f600 None'}`, `{"message": "a\tb\\c\nd ä € 😀 None"}`},
		{`{'message': 'naïve "quoted" \'too\''}`, `{"message": "naïve \"quoted\" 'too'"}`},
		{`{"message":"JSON itself","code":null,"at":"a\/b\ud83d\ude00"}`, `{"message":"JSON itself","code":null,"at":"a\/b\ud83d\ude00"}`},
	} {
		if got := string(workerError(tt.text)); got != tt.want {
			t.Errorf("workerError(%s)\n got %s\nwant %s", tt.text, got, tt.want)
		}
	}
}

func TestAnErrorInNoSuchFormIsText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "no luck", "{", "{}", "[1]", `{'error': 'no message'}`, `{'message': 1}`, `{'message': None}`, `{'message': 'open`,
		`{'message': 'x'} and more`, `{'message': 'bad \q'}`, `{'message': 'x\`, `{'message': <object at 0x1>}`, `{'message': 'x', 'v': Nothing}`,
		`{'message': 'x', 'message': 'y'}`, "{'message': '\xff'}",
	} {
		if got := workerError(text); got != nil {
			t.Errorf("workerError(%q) = %s, want none", text, got)
		}
	}
}
