package fault

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"
)

func TestKindsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range Kinds() {
		if k.String() == "" || seen[k.String()] {
			t.Errorf("kind %d: name %q", k, k)
		}
		seen[k.String()] = true
	}
}

func TestErrorKeepsItsIdentity(t *testing.T) {
	sentinel := New(Conflict, "reference-taken", "taken")
	err := fmt.Errorf("create: %w", sentinel.With("reference", "a").After(time.Second).Because(io.EOF))
	if !errors.Is(err, sentinel) || !errors.Is(err, io.EOF) {
		t.Error("lost on the way")
	}
	if errors.Is(err, New(Conflict, "other", "")) || errors.Is(err, New(Invalid, "reference-taken", "")) {
		t.Error("equals another problem")
	}
	e := As(err)
	if e.Fields["reference"] != "a" || e.Retry != time.Second || sentinel.Fields != nil {
		t.Errorf("%+v, sentinel %+v", e, sentinel)
	}
	if As(nil) != nil || Of(nil) != Internal || Of(io.EOF) != Internal || As(io.EOF).Detail != "" {
		t.Error("a foreign error is internal and tells the caller nothing")
	}
}
