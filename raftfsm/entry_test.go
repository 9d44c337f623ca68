package raftfsm

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares bytes that outlive a release with what is pinned.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".hex")
	text := hex.Dump(got)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != text {
		t.Errorf("%s changed; old logs and snapshots would not be read any more\ngot:\n%swant:\n%s", name, text, want)
	}
}

func sampleCommands(t testing.TB) []Command {
	one := command(t, 7, "uid", put{K: "key", V: -5})
	one.At, one.Epoch = 1_700_000_000_000_000, 3
	one.Key = &Key{Actor: "U7", Operation: "op", Key: "k", Hash: [32]byte{1, 2, 3}}
	two := command(t, 300, "uid2", nil)
	return []Command{one, two}
}

func assembled(t testing.TB, commands []Command) []byte {
	var data [][]byte
	for _, c := range commands {
		b, err := Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, b)
	}
	return assembleEntry(data)
}

func TestEntryBytes(t *testing.T) {
	golden(t, "entry", assembled(t, sampleCommands(t)))
	golden(t, "entry-empty", assembleEntry(nil))
	out, err := Encode(Outcome{Index: 9, Result: []byte{1}, Replayed: true})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "outcome", out)
}

// The hand-made head is what the encoder would have written.
func TestAssembleIsEncode(t *testing.T) {
	for _, n := range []int{0, 1, 23, 24, 255, 256, 1000} {
		commands := make([]Command, n)
		for i := range commands {
			commands[i] = sampleCommands(t)[0]
		}
		want, err := Encode(entry{Version: formatVersion, Commands: commands})
		if err != nil {
			t.Fatal(err)
		}
		got := assembled(t, commands)
		if !bytes.Equal(got, want) {
			t.Errorf("%d commands: % x..., want % x...", n, got[:8], want[:8])
		}
		e, err := decodeEntry(got)
		if err != nil || len(e.Commands) != n {
			t.Errorf("%d commands came back as %d, %v", n, len(e.Commands), err)
		}
	}
}

func TestEntryIsRefused(t *testing.T) {
	own, other := command(t, 1, "", nil), command(t, 1, "t", nil)
	for what, data := range map[string][]byte{
		"a mixed":        assembled(t, []Command{own, other}),
		"a newer":        append([]byte{0x82, 2}, assembled(t, nil)[2:]...),
		"a longer":       append(assembled(t, []Command{own}), 0),
		"an endless":     {0x9f, 1, 0x80, 0xff},
		"an empty":       nil,
		"a larger array": {0x82, 1, 0x9b, 0, 0, 0, 1, 0, 0, 0, 0},
	} {
		if _, err := decodeEntry(data); err == nil {
			t.Errorf("%s entry was decoded", what)
		}
	}
}

func FuzzDecodeEntry(f *testing.F) {
	f.Add(assembled(f, sampleCommands(f)))
	f.Add(assembleEntry(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := decodeEntry(data)
		if err != nil {
			return
		}
		// What was decoded encodes to what decodes to the same.
		again := assembled(t, e.Commands)
		second, err := decodeEntry(again)
		if err != nil {
			if strings.Contains(err.Error(), "nested") {
				return
			}
			t.Fatalf("% x decodes, its encoding % x does not: %v", data, again, err)
		}
		if !bytes.Equal(assembled(t, second.Commands), again) {
			t.Fatalf("% x is not stable", data)
		}
	})
}

func FuzzReadManifest(f *testing.F) {
	var b bytes.Buffer
	if err := writeManifest(&b, &manifest{Version: manifestVersion, Kind: kindSent, Group: "C2"}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = readManifest(bytes.NewReader(data)) // must not panic
	})
}

func TestHashOfTellsParts(t *testing.T) {
	a, errA := HashOf("ab", "c")
	b, errB := HashOf("a", "bc")
	c, errC := HashOf("ab", "c")
	if errA != nil || errB != nil || errC != nil || a == b || a != c {
		t.Error("hashes do not tell the parts")
	}
}

func TestDecodeIsStrict(t *testing.T) {
	type body struct {
		_ struct{} `cbor:",toarray"`
		A int
	}
	b, err := Encode(body{A: 1})
	if err != nil {
		t.Fatal(err)
	}
	var into body
	if err := Decode(append(b, 0), &into); err == nil {
		t.Error("trailing bytes were read over")
	}
	if err := Decode(cbor.RawMessage{0x82, 1, 2}, &into); err == nil {
		t.Error("an element more was read over")
	}
}
