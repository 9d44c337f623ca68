package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"text/tabwriter"

	"zombiezen.com/go/sqlite"
)

type versionCommand struct {
	JSON bool `name:"json" help:"Print one JSON document."`
}

type versions struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
	SQLite  string `json:"sqlite"`
	Raft    string `json:"raft"`
}

func currentVersions() versions {
	v := versions{Version: "unknown", Commit: "unknown", Go: runtime.Version(), SQLite: sqlite.Version, Raft: "unknown"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	dirty := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			v.Commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+changes"
		}
	}
	v.Commit += dirty
	for _, dep := range info.Deps {
		if dep.Path == "github.com/hashicorp/raft" {
			v.Raft = dep.Version
		}
	}
	return v
}

func (c *versionCommand) Run(out io.Writer) error {
	v := currentVersions()
	if c.JSON {
		b, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%s\n", b)
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "celld\t%s\ncommit\t%s\ngo\t%s\nsqlite\t%s\nraft\t%s\n", v.Version, v.Commit, v.Go, v.SQLite, v.Raft)
	return w.Flush()
}
