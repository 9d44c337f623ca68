package importer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Bounds of one CSV record. A request body may have 256 KiB (design section 7), so
// no longer field can be loaded; a record also holds columns that are not loaded.
const (
	maxField   = 256 << 10
	maxRecord  = 1 << 20
	maxColumns = 1024
)

// syntaxError is a fault after which the rest of the file cannot be trusted to
// be cut into rows at the right places.
type syntaxError struct {
	line   int
	reason string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("line %d: %s", e.line, e.reason) }

// csvReader cuts a stream into records as RFC 4180 says, with LF or CRLF between
// them. It differs from encoding/csv in what an import needs: it keeps a CR LF
// inside quotes as it is, so that text comes back as it was exported, and it
// gives up at its bounds instead of reading an unclosed quote into memory.
type csvReader struct {
	r      *bufio.Reader
	line   int   // of the byte that is read next, from 1
	offset int64 // bytes read so far

	record []byte // the current record's fields, one after the other
	ends   []int  // where each field ends in record
	start  int    // the line where the current record began
}

func newCSVReader(r io.Reader) (*csvReader, error) {
	c := &csvReader{r: bufio.NewReaderSize(r, 64<<10), line: 1}
	head, err := c.r.Peek(3)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.Equal(head, []byte("\xef\xbb\xbf")):
		c.offset = 3
		_, err := c.r.Discard(3)
		return c, err
	case bytes.HasPrefix(head, []byte("\xff\xfe")), bytes.HasPrefix(head, []byte("\xfe\xff")):
		return nil, errors.New("is UTF-16; save it as UTF-8")
	}
	return c, nil
}

// next returns the next record and the line where it begins, or io.EOF. Empty
// lines are skipped. Any other error ends the file.
func (c *csvReader) next() (fields []string, line int, err error) {
	c.record, c.ends = c.record[:0], c.ends[:0]
	for {
		c.start = c.line
		b, err := c.readByte()
		if err != nil {
			return nil, c.start, err
		}
		if b == '\n' {
			continue
		}
		if b == '\r' {
			if err := c.lineFeed(); err != nil {
				return nil, c.start, err
			}
			continue
		}
		c.unreadByte(b)
		break
	}
	for more := true; more; {
		if more, err = c.field(); err != nil {
			return nil, c.start, err
		}
	}
	text := string(c.record)
	fields = make([]string, len(c.ends))
	from := 0
	for i, end := range c.ends {
		fields[i] = text[from:end]
		from = end
	}
	return fields, c.start, nil
}

// field reads one field and its terminator and reports whether another follows.
func (c *csvReader) field() (more bool, err error) {
	if len(c.ends) == maxColumns {
		return false, c.fault("more than %d columns", maxColumns)
	}
	b, err := c.readByte()
	if err == nil && b == '"' {
		if err := c.quoted(); err != nil {
			return false, err
		}
		b, err = c.readByte()
		if err == nil && b != ',' && b != '\n' && b != '\r' {
			return false, c.fault(`text follows a closing quote (a quote inside quotes is written "")`)
		}
	}
	for ; ; b, err = c.readByte() {
		switch {
		case errors.Is(err, io.EOF):
			return false, c.endField()
		case err != nil:
			return false, err
		case b == ',':
			return true, c.endField()
		case b == '\n':
			return false, c.endField()
		case b == '\r':
			if err := c.lineFeed(); err != nil {
				return false, err
			}
			return false, c.endField()
		case b == '"':
			return false, c.fault("a quote stands inside a field that is not quoted")
		}
		if err := c.add(b); err != nil {
			return false, err
		}
	}
}

// quoted reads up to and including the closing quote.
func (c *csvReader) quoted() error {
	for {
		b, err := c.readByte()
		if errors.Is(err, io.EOF) {
			return c.fault("a quote is never closed")
		}
		if err != nil {
			return err
		}
		if b == '"' {
			after, err := c.readByte()
			if err != nil || after != '"' {
				if err == nil {
					c.unreadByte(after)
				} else if !errors.Is(err, io.EOF) {
					return err
				}
				return nil
			}
		}
		if err := c.add(b); err != nil {
			return err
		}
	}
}

// lineFeed reads the LF that must follow a CR outside quotes.
func (c *csvReader) lineFeed() error {
	b, err := c.readByte()
	if err == nil && b == '\n' {
		return nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return c.fault("a carriage return outside quotes is not followed by a line feed")
}

func (c *csvReader) add(b byte) error {
	if len(c.record) == maxRecord {
		return c.fault("the row is larger than %d bytes (is a quote never closed?)", maxRecord)
	}
	c.record = append(c.record, b)
	return nil
}

func (c *csvReader) endField() error {
	from := 0
	if n := len(c.ends); n > 0 {
		from = c.ends[n-1]
	}
	if len(c.record)-from > maxField {
		return c.fault("column %d is larger than %d bytes (is a quote never closed?)", len(c.ends)+1, maxField)
	}
	c.ends = append(c.ends, len(c.record))
	return nil
}

func (c *csvReader) readByte() (byte, error) {
	b, err := c.r.ReadByte()
	if err != nil {
		return 0, err
	}
	c.offset++
	if b == '\n' {
		c.line++
	}
	return b, nil
}

// unreadByte takes back b, which readByte has just returned.
func (c *csvReader) unreadByte(b byte) {
	_ = c.r.UnreadByte() // cannot fail right after a read
	c.offset--
	if b == '\n' {
		c.line--
	}
}

func (c *csvReader) fault(format string, args ...any) error {
	return &syntaxError{line: c.start, reason: fmt.Sprintf(format, args...)}
}
