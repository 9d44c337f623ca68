package platform

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"celld/cmd/celld/settings"
)

// stateVersion is the version of platform.json.
const stateVersion = 1

// state is what the platform itself must remember from one start to the next:
// DIR/platform.json.
type state struct {
	Version  int      `json:"version"`
	Cells    []string `json:"cells"`
	Replicas int      `json:"replicas"`
	Gateways int      `json:"gateways"`
	// Joined are nodes that came to their cells later, Removed those that their cells
	// have removed, by names like C2/n4.
	Joined  []string `json:"joined,omitempty"`
	Removed []string `json:"removed,omitempty"`
	// Formed says that every group has had a leader once. From then on a member
	// whose data is gone must not come back under its old id, so no start forms a
	// group again.
	Formed bool `json:"formed"`
	// Welcomed says that the first user and the first tenant have been made.
	Welcomed bool `json:"welcomed,omitempty"`
	// Fixture is what the adversarial fixture holds; nil if it was never asked for.
	Fixture *fixtureState `json:"fixture,omitempty"`
}

// nodes are the names of a cell's nodes, and which of them joined later.
func (s *state) nodes(cell string) (names []string, joined map[string]bool) {
	joined = map[string]bool{}
	for _, full := range s.Joined {
		if of, name, _ := strings.Cut(full, "/"); of == cell {
			joined[name] = true
			names = append(names, name)
		}
	}
	for i := range s.Replicas {
		name := "n" + strconv.Itoa(i+1)
		if !joined[name] && !slices.Contains(s.Removed, cell+"/"+name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, joined
}

func statePath(dir string) string { return filepath.Join(dir, "platform.json") }

// loadState reads the state of dir and holds the options against it: the shape of
// a platform is fixed when it is formed.
func loadState(dir string, o Options) (state, error) {
	var s state
	found, err := readJSON(statePath(dir), &s)
	if err != nil {
		return s, err
	}
	if !found {
		s = state{Version: stateVersion, Cells: []string{"C2", "C5"}, Replicas: 3, Gateways: 1}
		if o.Replicas != 0 {
			s.Replicas = o.Replicas
		}
		if o.Gateways != 0 {
			s.Gateways = o.Gateways
		}
		return s, nil
	}
	if s.Version != stateVersion {
		return s, fmt.Errorf("%s was written by a newer celld (version %d); use that one, or another folder with --data", statePath(dir), s.Version)
	}
	if o.Replicas != 0 && o.Replicas != s.Replicas {
		return s, fmt.Errorf("%s holds cells of %d replicas; leave out --replicas, or choose another folder with --data", dir, s.Replicas)
	}
	if o.Gateways != 0 && o.Gateways != s.Gateways {
		return s, fmt.Errorf("%s holds a platform of %d gateways; leave out --gateways, or choose another folder with --data", dir, s.Gateways)
	}
	return s, nil
}

// Credentials is DIR/dev-credentials.json.
type Credentials struct {
	Gateway       string            `json:"gateway"`  // URL of the public API of the first gateway
	Gateways      []string          `json:"gateways"` // of all of them
	Admin         string            `json:"admin"`    // URL of the operator API
	OperatorToken string            `json:"operatorToken"`
	Users         map[string]string `json:"users"` // API tokens by user id
}

// CredentialsPath is where a platform on dir writes its credentials.
func CredentialsPath(dir string) string { return filepath.Join(dir, "dev-credentials.json") }

// PIDsPath is where an isolated platform on dir writes its members' processes.
func PIDsPath(dir string) string { return filepath.Join(dir, "pids.json") }

// OperatorTokenPath is the file that `celld admin --token-file` reads.
func OperatorTokenPath(dir string) string { return filepath.Join(dir, "operator-token") }

// loadOperatorToken reads the operators' token of dir, or makes one.
func loadOperatorToken(dir string) (string, error) {
	path := OperatorTokenPath(dir)
	token, err := settings.Secret(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return token, err
	}
	token = strings.ToLower(rand.Text() + rand.Text())
	return token, writeFile(path, []byte(token+"\n"))
}

func makeDir(path string) error { return os.MkdirAll(path, 0o700) }
