package directory

import (
	"bytes"
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"celld/raftfsm"
	"celld/store/fault"
)

func TestEveryChangedCharacterOfASecretIsRefused(t *testing.T) {
	text, hash, err := newSecret(rand.Reader, apiSecret)
	must(t, err)
	if kind, h, ok := parseSecret(text); !ok || kind != apiSecret || h != hash {
		t.Fatalf("%q is not read back", text)
	}
	for i := range text {
		for _, c := range []byte("aZ0-_\n=+/s") {
			if text[i] == c {
				continue
			}
			if _, _, ok := parseSecret(text[:i] + string(c) + text[i+1:]); ok {
				t.Fatalf("character %d may be %q", i, c)
			}
		}
		if _, _, ok := parseSecret(text[:i] + text[i+1:]); ok {
			t.Fatalf("character %d may be left out", i)
		}
		if _, _, ok := parseSecret(text[:i] + "\n" + text[i:]); ok {
			t.Fatalf("a line break may stand before character %d", i)
		}
	}
}

func FuzzSecret(f *testing.F) {
	f.Add("")
	f.Add("celld_t_" + strings.Repeat("A", 48))
	f.Fuzz(func(t *testing.T, s string) {
		if _, _, ok := parseSecret(s); ok && len(s) != secretLen {
			t.Fatalf("%q has another length", s)
		}
	})
}

func TestPasswords(t *testing.T) {
	h := newHasher(Hashing{MemoryKiB: 64, Passes: 1, Parallel: 1, Queue: 1})
	ctx := context.Background()
	stored, err := h.hash(ctx, rand.Reader, "correct horse")
	must(t, err)
	if !strings.HasPrefix(stored, "$argon2id$v=19$m=64,t=1,p=1$") {
		t.Fatal(stored)
	}
	for _, c := range []struct {
		stored, password string
		want             bool
	}{{stored, "correct horse", true}, {stored, "correct hors", false}, {"", "", false}, {"", "correct horse", false}} {
		if got, err := h.verify(ctx, c.stored, c.password); err != nil || got != c.want {
			t.Errorf("verify(%q, %q) = %v, %v", c.stored, c.password, got, err)
		}
	}
	for _, bad := range []string{"x", "$argon2i$v=19$m=64,t=1,p=1$AAAA$AAAA", strings.Replace(stored, "m=64", "m=99999999", 1),
		strings.Replace(stored, "t=1", "t=0", 1), strings.Replace(stored, "v=19", "v=16", 1), strings.Replace(stored, "p=1", "p=0", 1)} {
		if _, err := h.verify(ctx, bad, "x"); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestLoginsWaitInABoundedQueue(t *testing.T) {
	h := newHasher(Hashing{MemoryKiB: 64, Passes: 1, Parallel: 1, Queue: 1})
	running, release := make(chan struct{}), make(chan struct{})
	results := make(chan error, 2)
	go func() { results <- h.turn(context.Background(), func() { close(running); <-release }) }()
	<-running
	waiting, giveUp := context.WithCancel(context.Background())
	h.waiting <- struct{}{} // one more in the queue
	wantSlug(t, h.turn(waiting, func() {}), "busy")
	<-h.waiting
	giveUp()
	wantSlug(t, h.turn(waiting, func() {}), "busy")
	close(release)
	must(t, <-results)
}

func TestFaultsCrossTheWire(t *testing.T) {
	for _, kind := range fault.Kinds() {
		in := fault.New(kind, "some-slug", "some detail").With("limit", 7).After(1500 * time.Millisecond)
		raw, err := raftfsm.Encode(answer{Fault: toWire(in)})
		must(t, err)
		var out answer
		must(t, raftfsm.Decode(raw, &out))
		got := fault.As(out.Fault.fault())
		if got.Kind != kind || got.Slug != in.Slug || got.Detail != in.Detail || got.Retry != in.Retry || got.Fields["limit"] != uint64(7) {
			t.Errorf("%v became %+v", in, got)
		}
	}
	if err := (&wireFault{Kind: "from-the-future"}).fault(); fault.Of(err) != fault.Internal {
		t.Errorf("an unknown kind is %v", fault.Of(err))
	}
}

func TestALeaseEndsByEitherClock(t *testing.T) {
	t0 := time.Unix(1000, 0)
	for _, c := range []struct {
		later time.Duration
		want  bool
	}{{0, true}, {leaseFor - 1, true}, {leaseFor, false}, {-1, false}, {time.Hour, false}} {
		if got := within(t0, t0.Add(c.later)); got != c.want {
			t.Errorf("after %v: %v", c.later, got)
		}
	}
	now := time.Now()
	if asleep := now.Round(0).Add(-leaseFor); within(asleep, now) {
		t.Error("a second of suspension went unnoticed")
	}
}

func TestFieldsAreChecked(t *testing.T) {
	for _, bad := range []string{"", "a", "@b", "a@", "a@b@c", "a b@c", "é@c", "a@" + strings.Repeat("b", 260), "a@b\n"} {
		if checkEmail(bad) == nil {
			t.Errorf("%q is taken for an address", bad)
		}
	}
	must(t, checkEmail("Ada.Lovelace+x@example.org"))
	for _, bad := range []string{"", " ", "a\x00b", "a\x1bb", "\xff", strings.Repeat("é", 201), "a\u0085b"} {
		if checkName("name", bad) == nil {
			t.Errorf("%q is taken for a name", bad)
		}
	}
	must(t, checkName("name", strings.Repeat("é", 200)))
	good := Cell{Name: "C2", Key: "k", Region: "eu", Nodes: map[string]string{"n2": "h:2", "n1": "[::1]:1"}}
	body, err := checkCell(good)
	must(t, err)
	if body.Nodes[0].Name != "n1" || body.Tier != "pooled" || body.State != "active" || body.Capacity != 10_000 {
		t.Errorf("%+v", body)
	}
	for name, change := range map[string]func(*Cell){
		"name": func(c *Cell) { c.Name = "2" }, "key": func(c *Cell) { c.Key = "" }, "region": func(c *Cell) { c.Region = "E U" },
		"tier": func(c *Cell) { c.Tier = "gold" }, "state": func(c *Cell) { c.State = "off" }, "capacity": func(c *Cell) { c.Capacity = -1 },
		"nodes": func(c *Cell) { c.Nodes = nil }, "address": func(c *Cell) { c.Nodes = map[string]string{"n1": "h"} },
		"node": func(c *Cell) { c.Nodes = map[string]string{"n/1": "h:1"} },
	} {
		bad := good
		change(&bad)
		if _, err := checkCell(bad); fault.Of(err) != fault.Invalid {
			t.Errorf("a bad %s: %v", name, err)
		}
	}
}

func TestIDs(t *testing.T) {
	id, err := newID(bytes.NewReader(make([]byte, 9)), "t-")
	must(t, err)
	if id != "t-aaaaaaaaaaaaa" {
		t.Fatal(id)
	}
}
