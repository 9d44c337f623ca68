package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"
)

const maxFile = 1 << 20

// File is the flag that names a configuration file for the settings T. What the
// file says holds where neither a flag nor the environment says otherwise.
type File[T any] string

// BeforeResolve reads the file and hands its values to the flags.
func (f File[T]) BeforeResolve(ctx *kong.Context, trace *kong.Path) error {
	path, ok := ctx.FlagValue(trace.Flag).(File[T])
	if !ok || path == "" {
		return nil
	}
	values, err := read[T](string(path))
	if err != nil {
		return err
	}
	ctx.AddResolver(kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		for _, env := range flag.Envs {
			if _, set := os.LookupEnv(env); set {
				return nil, nil // the environment goes first
			}
		}
		return values[key(flag.Name)], nil
	}))
	return nil
}

// read checks the file against T and returns its values by key.
func read[T any](path string) (map[string]any, error) {
	b, err := readBounded(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	keys, err := topKeys(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, readable(err))
	}
	known := fields(reflect.TypeFor[T]())
	seen := map[string]bool{}
	for _, k := range keys {
		if !known[k] {
			return nil, fmt.Errorf("%s: unknown key %q; celld's --help lists the settings, a key is the flag's name in camelCase", path, k)
		}
		if seen[k] {
			return nil, fmt.Errorf("%s: the key %q stands there twice", path, k)
		}
		seen[k] = true
	}
	var typed T
	if err := json.Unmarshal(b, &typed); err != nil {
		return nil, fmt.Errorf("%s: %w", path, readable(err))
	}
	values := map[string]any{}
	if err := json.Unmarshal(b, &values); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return values, nil
}

// readable says in a file's words what encoding/json says in Go's.
func readable(err error) error {
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &typ) && typ.Field != "":
		want := "a text in quotes"
		switch typ.Type.Kind() {
		case reflect.Map:
			want = "an object of texts"
		case reflect.Bool:
			want = "true or false"
		case reflect.Int:
			want = "a whole number"
		}
		// The name of an embedded struct is no part of the file.
		return fmt.Errorf("the key %q is a JSON %s and must be %s", typ.Field[strings.LastIndex(typ.Field, ".")+1:], typ.Value, want)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the JSON object does not end: %w", err)
	}
	return err
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if len(b) > maxFile {
		return nil, fmt.Errorf("%s is longer than %d bytes", path, maxFile)
	}
	return b, nil
}

// topKeys lists the keys of the one JSON object in b, repetitions included.
func topKeys(b []byte) ([]string, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	open, err := d.Token()
	if err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", err)
	}
	if open != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	var keys []string
	for d.More() {
		k, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		keys = append(keys, fmt.Sprint(k))
		if err := onceEach(fmt.Sprint(k), value); err != nil {
			return nil, err
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON object")
	}
	return keys, nil
}

// onceEach refuses a value that is an object with a repeated key: a node or a
// gateway that is named twice.
func onceEach(name string, value json.RawMessage) error {
	if len(value) == 0 || value[0] != '{' {
		return nil
	}
	inner, err := topKeys(value)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, k := range inner {
		if seen[k] {
			return fmt.Errorf("%q names %q twice", name, k)
		}
		seen[k] = true
	}
	return nil
}

// fields lists the JSON keys of a struct type, those of embedded structs included.
func fields(t reflect.Type) map[string]bool {
	known := map[string]bool{}
	for f := range t.Fields() {
		if f.Anonymous {
			for k := range fields(f.Type) {
				known[k] = true
			}
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		known[name] = true
	}
	return known
}

// key is the JSON key of a flag: log-level becomes logLevel.
func key(flag string) string {
	parts := strings.Split(flag, "-")
	for i, p := range parts[1:] {
		if p != "" {
			parts[i+1] = strings.ToUpper(p[:1]) + p[1:]
		}
	}
	return strings.Join(parts, "")
}
