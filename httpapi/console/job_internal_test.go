package console

import "testing"

func TestTheReceiverOfAWebhookIsShownWithoutSecrets(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		webhook      string
		mine, others string
	}{
		{"", "", ""},
		{"https://receiver.example/hook", "https://receiver.example/hook", "https://receiver.example"},
		{"https://user:secret@receiver.example:8443/a%2Fb?token=secret#secret", "https://receiver.example:8443/a%2Fb", "https://receiver.example:8443"},
		{"http://[2001:db8::1]/", "http://[2001:db8::1]/", "http://[2001:db8::1]"},
		{"://secret", "", ""},
	} {
		if got := receiverOf(tt.webhook, true); got != tt.mine {
			t.Errorf("the owner of the job sees %q of %q, want %q", got, tt.webhook, tt.mine)
		}
		if got := receiverOf(tt.webhook, false); got != tt.others {
			t.Errorf("others see %q of %q, want %q", got, tt.webhook, tt.others)
		}
	}
}
