package ship

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"celld/store"
)

// One of each chunk, byte for byte: two releases must understand each other.
func TestStreamsAreWrittenLikeThis(t *testing.T) {
	at := Position{PageSize: 512, Magic: walMagic, Salt: 0x0102030405060708, Frame: 9, Sum: [2]uint32{0xa0a1a2a3, 0xb0b1b2b3}, Pages: 5}
	start := Start{UID: "u1", Tenant: "T7", Epoch: 3, Position: at, Index: 11, Sequence: 12}
	var b bytes.Buffer
	out := newSender(&b)
	copy(out.room(3), "abc")
	must(t, errors.Join(
		out.send(kindStart, (&opening{kind: kindPages, start: start, first: 2}).body()),
		out.send(kindStart, (&opening{kind: kindFrames, start: start, from: at}).body()),
		out.send(kindEnd, Point{Position: at, Index: 13, Sequence: 14, Digest: Digest{31: 0xff}}.append(nil)),
	))
	copy(out.room(3), "abc")
	must(t, out.piece(kindFrames, 7, 3))
	position := "00000200" + "377f0682" + "0102030405060708" + "00000009" + "a0a1a2a3" + "b0b1b2b3" + "00000005"
	startBytes := position + "000000000000000b" + "000000000000000c" + "0000000000000003" + "02" + hex.EncodeToString([]byte("u1")) + "02" + hex.EncodeToString([]byte("T7"))
	var have []string
	for stream := b.Bytes(); len(stream) > 0; {
		n := chunkHead + int(uint32(stream[3])<<8|uint32(stream[4]))
		have = append(have, fmt.Sprintf("%c%d %x", stream[0], n-chunkHead, stream[chunkHead:n]))
		stream = stream[n:]
	}
	want := []string{
		"S75 " + hex.EncodeToString([]byte("celldsh1P")) + startBytes + "00000002",
		"S103 " + hex.EncodeToString([]byte("celldsh1F")) + startBytes + position,
		"E80 " + position + "000000000000000d" + "000000000000000e" + strings.Repeat("00", 31) + "ff",
		"F7 00000007616263",
	}
	if strings.Join(have, "\n") != strings.Join(want, "\n") {
		t.Errorf("have\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
	if head := hex.EncodeToString(b.Bytes()[b.Len()-16:]); head != "46000000075d950cb200000007616263" {
		t.Errorf("a chunk is %s", head)
	}
}

// Whatever comes, a stage refuses it or is what its source says.
func FuzzStream(f *testing.F) {
	f.Add([]byte("S\x00\x00\x00\x09celldsh1P"), true)
	f.Add([]byte{}, false)
	start := Start{Position: Position{PageSize: 512, Magic: walMagic, Frame: 1, Pages: 1}}
	page := make([]byte, 512)
	sum := newTally(512)
	_ = sum.put(1, page)
	var b bytes.Buffer
	out := newSender(&b)
	_ = out.send(kindStart, (&opening{kind: kindPages, start: start, first: 1}).body())
	copy(out.room(len(page)), page)
	_ = out.piece(kindPages, 1, len(page))
	_ = out.send(kindEnd, Point{Position: start.Position, Digest: sum.digest()}.append(nil))
	pages := bytes.Clone(b.Bytes())
	f.Add(pages, true)
	b.Reset()
	_ = out.send(kindStart, (&opening{kind: kindFrames, start: start, from: start.Position}).body())
	f.Add(bytes.Clone(b.Bytes()), false)
	_ = out.send(kindEnd, Point{Position: start.Position, Digest: sum.digest()}.append(nil))
	f.Add(bytes.Clone(b.Bytes()), false)
	cfg := StageConfig{Dir: f.TempDir(), Name: "t.db", MaxBytes: 1 << 20}
	f.Fuzz(func(t *testing.T, stream []byte, first bool) {
		to, err := openStage(cfg, newMemDisk())
		must(t, err)
		if first {
			err = to.TakePages(t.Context(), bytes.NewReader(stream))
		} else {
			must(t, to.TakePages(t.Context(), bytes.NewReader(pages)))
			_, err = to.TakeRound(t.Context(), bytes.NewReader(stream))
		}
		if p := to.Progress(); p.Whole && (err == nil || !errors.Is(err, ErrBroken)) {
			must(t, to.Verify(t.Context()))
		} else if err == nil {
			t.Errorf("took %d bytes and has %+v", len(stream), p)
		}
		must(t, to.Close())
	})
}

// beside runs work in a goroutine, once for each call of go, until stop.
func beside(t *testing.T, work func(turn int) error) (more, stop func()) {
	turns, over := make(chan int, 64), make(chan struct{})
	go func() {
		defer close(over)
		for turn := range turns {
			if err := work(turn); err != nil {
				t.Error(err)
			}
		}
	}()
	n := 0
	return func() { n++; turns <- n }, func() { close(turns); <-over }
}

func (w *world) replace(turn int) error {
	for i := range 10 {
		if err := w.f.Update(func(tx *store.Tx) error {
			return tx.Savepoint(func() error {
				tx.Control().Applied++
				tx.Control().Sequence++
				_, err := tx.Exec("INSERT OR REPLACE INTO note (id, body, extra) VALUES (?, ?, zeroblob(?))", (turn*10+i)%50, fmt.Sprint(i), (turn*10+i)*37%20000)
				return err
			})
		}); err != nil {
			return err
		}
	}
	return nil
}

// Writers, checkpoints, syncs and the copy, all at a time.
func TestCopyWhileOthersWrite(t *testing.T) {
	w := newWorld(t)
	for range 20 {
		w.insert(t, 9000)
	}
	s := begin(t, w)
	defer s.Close()
	write, stopWriting := beside(t, w.replace)
	move, stopMoving := beside(t, func(int) error { return errors.Join(w.f.Checkpoint(), w.f.Sync()) })
	write()
	move()
	err := pages(s, w.stage)
	last := w.stage.Progress().At
	for i := 0; i < 20 && err == nil; i++ {
		write()
		move()
		var end Point
		if end, err = round(s, w.stage); err != nil {
			break
		}
		if end.Frame < last.Frame || end.Sequence < last.Sequence {
			t.Errorf("from %+v back to %+v", last, end)
		}
		last = end
		if i%10 == 5 {
			err = w.stage.Inspect(func(p *store.Pin) error {
				if c := p.Control(); c.Applied != end.Index || c.Sequence != end.Sequence {
					t.Errorf("the round ends at %+v, its control row says %+v", end, c)
				}
				return p.Check()
			})
		}
	}
	stopWriting()
	stopMoving()
	must(t, err)
	must2(t)(round(s, w.stage))
	w.same(t)
	must(t, w.stage.Verify(t.Context()))
}

// However the WAL has changed by the time that anybody looks, a copy that broke for its
// size says so.
func TestCopyThatIsTooSlowSaysSo(t *testing.T) {
	w := newWorld(t)
	s, err := Begin(t.Context(), SourceConfig{File: w.f, MaxWAL: 300 << 10})
	must(t, err)
	defer s.Close()
	must(t, pages(s, w.stage))
	slow := 0
	s.piece = 1
	s.cfg.Pace = func(context.Context, int) error { // while it reads, the WAL outgrows it and begins anew
		slow++
		if slow == 5 {
			for turn := range 3 {
				must(t, errors.Join(w.replace(turn+20), w.replace(turn+21), w.f.Checkpoint()))
			}
		}
		return nil
	}
	must(t, w.replace(10))
	_, err = round(s, w.stage)
	for i := 0; err == nil && i < 3; i++ {
		_, err = round(s, w.stage)
	}
	if !errors.Is(err, ErrBroken) || !errors.Is(err, store.ErrPinOutgrown) || slow < 5 {
		t.Errorf("after %d pieces: %v", slow, err)
	}
}
