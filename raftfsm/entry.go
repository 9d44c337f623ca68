package raftfsm

import (
	"fmt"

	"celld/store/fault"
)

// entry is what one log entry holds: commands for targets, or commands for the
// group's own file, never both. A command for the group's own file stands
// between what is before and after it in the log, and a target whose commands
// stood on both sides of it within one entry could not say by its applied index
// how much of the entry it holds.
type entry struct {
	_        struct{} `cbor:",toarray"`
	Version  uint8
	Commands []Command
}

// own reports whether the entry is for the group's own file.
func (e *entry) own() bool { return len(e.Commands) > 0 && e.Commands[0].Target == "" }

// entryOverhead is the most that an entry adds to the bytes of its commands.
const entryOverhead = 5

// assembleEntry makes an entry of encoded commands: the very bytes that Encode
// would make of the entry, without encoding the commands a second time.
func assembleEntry(commands [][]byte) []byte {
	size := entryOverhead
	for _, c := range commands {
		size += len(c)
	}
	b := make([]byte, 0, size)
	b = append(b, 0x82, formatVersion) // an array of two: the version, and an array of commands
	switch n := len(commands); {
	case n < 24:
		b = append(b, 0x80|byte(n))
	case n < 1<<8:
		b = append(b, 0x98, byte(n))
	default:
		b = append(b, 0x99, byte(n>>8), byte(n))
	}
	for _, c := range commands {
		b = append(b, c...)
	}
	return b
}

// decodeEntry takes an entry apart and checks what every entry must keep to.
func decodeEntry(b []byte) (entry, error) {
	var e entry
	if err := Decode(b, &e); err != nil {
		return entry{}, fmt.Errorf("undecodable log entry: %w", err)
	}
	if e.Version != formatVersion {
		return entry{}, fmt.Errorf("log entry of format %d; this program reads %d: run the newer program", e.Version, formatVersion)
	}
	for i := range e.Commands {
		if (e.Commands[i].Target == "") != e.own() {
			return entry{}, fmt.Errorf("log entry mixes commands for the group's own file with others")
		}
	}
	return e, nil
}

// tooLarge is the refusal of a command that no entry can hold.
func tooLarge(size, bound int) error {
	return fault.New(fault.TooLarge, "command-too-large", "the change takes %d bytes in the log, more than %d", size, bound)
}
