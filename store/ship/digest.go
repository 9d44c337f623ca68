package ship

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
)

// Digest is over all pages of a database: the sum of the SHA-256 of each page with
// its number, in four 64-bit words that each wrap around. It can be kept while pages
// change, from what each was and what it is.
type Digest [sha256.Size]byte

// String implements fmt.Stringer.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

type pageHash [sha256.Size]byte

// tally keeps the digest of a database while its pages change, in any order.
type tally struct {
	pages uint32 // the database has
	words [4]uint64
	hash  hash.Hash
	head  [4]byte
	zero  []byte // a page of zeros: what one is that was never written

	old func(page uint32) (pageHash, error)   // of one that the database has, as it is
	set func(page uint32, now pageHash) error // keeps it for old; nil if old needs no keeping
}

func newTally(pageSize uint32) *tally {
	return &tally{hash: sha256.New(), zero: make([]byte, pageSize)}
}

func (t *tally) of(page uint32, b []byte) (h pageHash) {
	binary.BigEndian.PutUint32(t.head[:], page)
	t.hash.Reset()
	t.hash.Write(t.head[:])
	t.hash.Write(b)
	t.hash.Sum(h[:0])
	return h
}

func (t *tally) add(h *pageHash) {
	for i := range t.words {
		t.words[i] += binary.BigEndian.Uint64(h[8*i:])
	}
}

func (t *tally) subtract(h *pageHash) {
	for i := range t.words {
		t.words[i] -= binary.BigEndian.Uint64(h[8*i:])
	}
}

// put notes that a page is b from now on. Pages between the database's end and a page
// behind it are of zeros.
func (t *tally) put(page uint32, b []byte) error {
	if page <= t.pages {
		was, err := t.old(page)
		if err != nil {
			return err
		}
		t.subtract(&was)
		return t.keep(page, b)
	}
	if err := t.grow(page - 1); err != nil {
		return err
	}
	t.pages = page
	return t.keep(page, b)
}

func (t *tally) keep(page uint32, b []byte) error {
	now := t.of(page, b)
	t.add(&now)
	if t.set == nil {
		return nil
	}
	return t.set(page, now)
}

func (t *tally) grow(pages uint32) error {
	for t.pages < pages {
		t.pages++
		if err := t.keep(t.pages, t.zero); err != nil {
			return err
		}
	}
	return nil
}

// resize notes that the database ends after so many pages.
func (t *tally) resize(pages uint32) error {
	for ; t.pages > pages; t.pages-- {
		was, err := t.old(t.pages)
		if err != nil {
			return err
		}
		t.subtract(&was)
	}
	return t.grow(pages)
}

func (t *tally) digest() (d Digest) {
	for i, w := range t.words {
		binary.BigEndian.PutUint64(d[8*i:], w)
	}
	return d
}

// resume goes on from a digest of so many pages.
func (t *tally) resume(pages uint32, d Digest) {
	t.pages = pages
	for i := range t.words {
		t.words[i] = binary.BigEndian.Uint64(d[8*i:])
	}
}
