package importer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxKnown bounds the objects of one kind that an import can compare with.
const maxKnown = 5_000_000

// entry is what is known of one reference.
type entry struct {
	id   int64 // 0 until it exists
	line int   // the row of this file that has it; 0 for none
	sum  digest
}

// known holds the objects of one kind that exist, by reference, and those
// without one by content. The reading goroutine looks up and claims; workers set
// the ids of what they created.
type known struct {
	layout *layout // nil if no file of this kind is loaded: references and ids only

	mu         sync.Mutex
	references map[string]entry
	contents   map[digest]entry
	highest    int64 // id when the import began
}

func newKnown(l *layout) *known {
	return &known{layout: l, references: map[string]entry{}, contents: map[digest]entry{}}
}

// load walks all pages of the tenant's list of this kind.
func (k *known) load(ctx context.Context, c *client, kind *kind, path string) error {
	cursor, seen := "", 0
	for {
		query := url.Values{"limit": {strconv.Itoa(pageSize)}}
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		got, err := c.do(ctx, "GET", path+"?"+query.Encode(), "", nil, maxPage)
		if err != nil {
			return err
		}
		var page struct {
			Items      []json.RawMessage `json:"items"`
			NextCursor string            `json:"nextCursor"`
		}
		if err := json.Unmarshal(got.body, &page); err != nil || page.Items == nil {
			return fmt.Errorf("the list of %s is not one: is this the address of a celld gateway?", kind.name)
		}
		if seen += len(page.Items); seen > maxKnown {
			return fmt.Errorf("the tenant has more than %d %s, which is more than an import can compare with", maxKnown, kind.name)
		}
		for _, item := range page.Items {
			o, err := decodeObject(kind, item)
			if err != nil {
				return err
			}
			k.add(o)
		}
		if page.NextCursor == "" {
			return nil
		}
		if page.NextCursor == cursor {
			return errors.New("the list does not go on: two pages end with the same cursor")
		}
		cursor = page.NextCursor
	}
}

func (k *known) add(o object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.highest = max(k.highest, o.id)
	e := entry{id: o.id}
	if k.layout != nil {
		e.sum = k.layout.digest(&o)
	}
	if ref := o.values[atReference]; ref != "" {
		k.references[ref] = e
	} else if k.layout != nil {
		k.contents[e.sum] = e
	}
}

// claim looks a row up and notes that its line has its reference now. It returns
// what was known before, the zero entry for nothing.
func (k *known) claim(r *row) (entry, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	ref := r.reference()
	before := k.contents[r.sum]
	if ref != "" {
		before = k.references[ref]
	}
	if before.line != 0 {
		if ref != "" {
			return before, fmt.Errorf("reference %s is that of line %d already", quote(ref), before.line)
		}
		return before, fmt.Errorf("is the same as line %d, and neither has a reference to tell them apart", before.line)
	}
	after := before
	after.line = r.line
	if ref != "" {
		k.references[ref] = after
	} else {
		k.contents[r.sum] = after
	}
	return before, nil
}

// created notes the id of a row's object, and reports whether it is newer than
// the import.
func (k *known) created(r *row, id int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if ref := r.reference(); ref != "" {
		e := k.references[ref]
		e.id = id
		k.references[ref] = e
	}
	return id > k.highest
}

// customer is the id of the customer with this reference.
func (k *known) customer(reference string) (int64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.references[reference]
	switch {
	case e.id != 0:
		return e.id, nil
	case e.line != 0:
		return 0, fmt.Errorf("customer %s was not loaded (line %d of the customers)", quote(reference), e.line)
	}
	return 0, fmt.Errorf("there is no customer with reference %s", quote(reference))
}

// decodeObject reads a customer or an invoice as the API answers it.
func decodeObject(k *kind, raw []byte) (object, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return object{}, fmt.Errorf("the gateway's answer is not a %s: %w", k.noun, err)
	}
	o := object{values: make([]string, len(k.sent))}
	if err := json.Unmarshal(members[k.idName], &o.id); err != nil || o.id <= 0 {
		return object{}, fmt.Errorf("the gateway's answer has no %s", k.idName)
	}
	for i, v := range k.sent {
		text, err := member(members, v)
		if err != nil {
			return object{}, fmt.Errorf("%s %d has an unreadable %s: %w", k.noun, o.id, v.name, err)
		}
		if v.name == "issuedAt" && text != "" {
			t, err := time.Parse(time.RFC3339, text)
			if err != nil {
				return object{}, fmt.Errorf("%s %d has an unreadable issuedAt: %w", k.noun, o.id, err)
			}
			text = t.UTC().Format(time.RFC3339Nano)
		}
		o.values[i] = text
	}
	return o, nil
}

// member is the text of one value, "" if it is absent or null.
func member(members map[string]json.RawMessage, v value) (string, error) {
	name := v.name
	if outer, inner, nested := strings.Cut(name, "."); nested {
		raw := members[outer]
		if raw == nil {
			return "", nil
		}
		members = nil
		if err := json.Unmarshal(raw, &members); err != nil {
			return "", err
		}
		name = inner
	}
	raw := members[name]
	if raw == nil || string(raw) == "null" {
		return "", nil
	}
	if v.number {
		var n int64
		err := json.Unmarshal(raw, &n)
		return strconv.FormatInt(n, 10), err
	}
	var text string
	err := json.Unmarshal(raw, &text)
	return text, err
}
