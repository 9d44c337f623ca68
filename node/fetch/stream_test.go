package fetch

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"
)

var update = flag.Bool("update", false, "write the golden files anew")

func sample(t testing.TB, pages int) (Header, []byte, []byte) {
	t.Helper()
	h := Header{Version: streamVersion, UID: "aaaaaaaaaaaaaaaaaaaaaaaaaa", Tenant: "T7", Epoch: 3, Folder: "3-0", AsOf: 99, PageSize: 512, Pages: uint32(pages)}
	content := make([]byte, 512*pages)
	for i := range content {
		content[i] = byte(i * 7)
	}
	var b bytes.Buffer
	s, err := newSender(&b, h)
	for rest := content; err == nil && len(rest) > 0; {
		n := min(len(rest), 1024)
		err = s.piece(rest[:n])
		rest = rest[n:]
	}
	if err := errors.Join(err, s.end()); err != nil {
		t.Fatal(err)
	}
	return h, content, b.Bytes()
}

func receive(r io.Reader) (h Header, content []byte, err error) {
	in, err := newReceiver(r)
	if err != nil {
		return h, nil, err
	}
	for {
		piece, err := in.next()
		if errors.Is(err, io.EOF) {
			return in.head, content, nil
		}
		if err != nil {
			return in.head, content, err
		}
		content = append(content, piece...)
	}
}

func TestStreamBytes(t *testing.T) {
	h, content, whole := sample(t, 3)
	path := filepath.Join("testdata", "stream.hex")
	text := hex.Dump(whole)
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != text {
		t.Errorf("nodes of another version could not read this any more:\n%s", text)
	}
	for _, r := range []io.Reader{bytes.NewReader(whole), iotest.OneByteReader(bytes.NewReader(whole))} {
		got, pages, err := receive(r)
		if err != nil || got != h || !bytes.Equal(pages, content) {
			t.Errorf("read back %+v, %d bytes, %v", got, len(pages), err)
		}
	}
}

// Whatever happens to a stream on its way, what is taken for whole is what was sent.
func TestDamagedStreamIsRefused(t *testing.T) {
	_, content, whole := sample(t, 3)
	for i := range whole {
		flipped := bytes.Clone(whole)
		flipped[i] ^= 0x10
		if _, got, err := receive(bytes.NewReader(flipped)); err == nil {
			t.Fatalf("byte %d flipped: taken (%v)", i, bytes.Equal(got, content))
		}
		if _, _, err := receive(bytes.NewReader(whole[:i])); err == nil {
			t.Fatalf("cut off behind byte %d: taken", i)
		}
	}
	if _, _, err := receive(bytes.NewReader(append(bytes.Clone(whole), 0))); err == nil {
		t.Error("more than was sent: taken")
	}
}

func FuzzReceive(f *testing.F) {
	_, _, whole := sample(f, 2)
	f.Add(whole)
	f.Add(whole[:60])
	f.Fuzz(func(t *testing.T, data []byte) {
		h, content, err := receive(bytes.NewReader(data))
		if err == nil && int64(len(content)) != h.bytes() {
			t.Fatalf("%d bytes of %d", len(content), h.bytes())
		}
	})
}
