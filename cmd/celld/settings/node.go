package settings

import (
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a time span written like 1.5s.
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// Bytes is an amount of storage written like 512MiB; the units are KiB, MiB and
// GiB, and a bare number is bytes.
type Bytes uint64

// units from the largest, so that an amount is written by the largest that fits.
var units = [...]struct {
	name string
	size uint64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *Bytes) UnmarshalText(text []byte) error {
	number, size := string(text), uint64(1)
	for _, u := range units {
		if n, ok := strings.CutSuffix(number, u.name); ok {
			number, size = n, u.size
			break
		}
	}
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || n > math.MaxInt64/size {
		return fmt.Errorf("%q is not an amount of storage, like 512MiB", text)
	}
	*b = Bytes(n * size)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (b Bytes) MarshalText() ([]byte, error) {
	for _, u := range units {
		if n := uint64(b); n > 0 && n%u.size == 0 {
			return []byte(strconv.FormatUint(n/u.size, 10) + u.name), nil
		}
	}
	return []byte(strconv.FormatUint(uint64(b), 10)), nil
}

// Common is what every process is told.
type Common struct {
	Data        string   `json:"data,omitempty" env:"CELLD_DATA" placeholder:"DIR" help:"Folder for this process's data; nothing else writes there."`
	Inner       string   `json:"inner,omitempty" env:"CELLD_INNER" placeholder:"ADDR" help:"host:port for traffic between the cluster's processes (mutual TLS)."`
	Identity    string   `json:"identity,omitempty" env:"CELLD_IDENTITY" placeholder:"DIR" help:"Folder that celld ca issue wrote for this process: cert.pem, key.pem, ca.pem, for a gateway also context-key.pem."`
	LogLevel    string   `json:"logLevel,omitempty" env:"CELLD_LOG_LEVEL" enum:"debug,info,warn,error" default:"info" help:"Least level that is logged: ${enum}."`
	StopWithin  Duration `json:"stopWithin,omitempty" env:"CELLD_STOP_WITHIN" default:"10s" help:"How long an ordered stop may take."`
	Pprof       string   `json:"pprof,omitempty" env:"CELLD_PPROF" placeholder:"ADDR" help:"host:port where /debug/pprof/ of Go answers anybody who asks, so best on the loopback interface; none if empty."`
	DiskReserve Bytes    `json:"diskReserve" env:"CELLD_DISK_RESERVE" placeholder:"BYTES" default:"512MiB" help:"Free disk space that is kept: below it no new writes are taken on here, and leadership goes to a member with more. 0 keeps none."`
	LogEntries  int      `json:"logEntries" env:"CELLD_LOG_ENTRIES" placeholder:"N" default:"20000" help:"After how many new entries Raft's log is cut; as many stay for members that lag."`
	LogBytes    Bytes    `json:"logBytes" env:"CELLD_LOG_BYTES" placeholder:"BYTES" default:"256MiB" help:"After how many new bytes it is cut."`
	LogAge      Duration `json:"logAge,omitempty" env:"CELLD_LOG_AGE" default:"1h" help:"After what time it is cut, if there is anything new."`
	Election    Duration `json:"election,omitempty" env:"CELLD_ELECTION" default:"1.5s" help:"Raft's heartbeat and election timeout; a leader's death is noticed after one to two of them. Equal in all members of a group."`
}

// Level is the least level that is logged.
func (c Common) Level() slog.Level {
	var l slog.Level
	if err := l.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return slog.LevelInfo // the flag's enum leaves no other case than an empty one
	}
	return l
}

// Node is what a node of a cell is told.
type Node struct {
	Cell        string            `json:"cell,omitempty" env:"CELLD_CELL" placeholder:"C2" help:"The cell's name."`
	Name        string            `json:"name,omitempty" env:"CELLD_NAME" placeholder:"n1" help:"The node's name within the cell."`
	Region      string            `json:"region,omitempty" env:"CELLD_REGION" placeholder:"REGION" help:"The region in which the cell stands."`
	Nodes       map[string]string `json:"nodes,omitempty" env:"CELLD_NODES" placeholder:"NAME=ADDR;..." help:"Every node of the cell by name, this one included, with its inner address."`
	Join        bool              `json:"join,omitempty" env:"CELLD_JOIN" help:"This node does not form its cell: with an empty data folder it takes a new server id and waits until celld admin cell add-node adds it."`
	Metrics     string            `json:"metrics,omitempty" env:"CELLD_METRICS" placeholder:"ADDR" help:"host:port for /metrics, /healthz and /readyz; none if empty."`
	CacheMib    int               `name:"cache-mib" json:"cacheMib" env:"CELLD_CACHE_MIB" default:"64" placeholder:"N" help:"MiB of memory for records that are kept as they are answered; 0 for none."`
	ContextKeys map[string]string `json:"contextKeys,omitempty" env:"CELLD_CONTEXT_KEYS" placeholder:"NAME=FILE;..." help:"For each gateway the file with the public key of its signed contexts."`
	DigestEvery Duration          `json:"digestEvery,omitempty" env:"CELLD_DIGEST_EVERY" default:"24h" help:"Within which time the replicas of each tenant are compared."`
	DigestRate  int               `json:"digestRate,omitempty" env:"CELLD_DIGEST_RATE" default:"16" help:"How many MiB a second that may read on this node."`
	FetchRate   int               `json:"fetchRate,omitempty" env:"CELLD_FETCH_RATE" default:"64" help:"How many MiB a second of tenants' files this node fetches from others when it lacks some, and sends to them."`
	KeepKeys    Duration          `json:"keepKeys,omitempty" env:"CELLD_KEEP_KEYS" default:"48h" help:"How long idempotency keys are kept, 24h at least. Equal in all nodes of a cell."`
	KeepAudit   Duration          `json:"keepAudit,omitempty" env:"CELLD_KEEP_AUDIT" default:"9600h" help:"How long tenants' audit and outbox rows are kept, at least as long as keys. Equal in all nodes of a cell."`
	Common      `embed:""`
}

// DefaultCacheMib is the default of a node's cache.
const DefaultCacheMib = 64

// What a gateway logs where it is not told otherwise; its flags have the same defaults.
const (
	DefaultRequestLog  = 100
	DefaultSlowRequest = Duration(500 * time.Millisecond)
)

// Gateway is what a gateway is told.
type Gateway struct {
	Name              string            `json:"name,omitempty" env:"CELLD_NAME" placeholder:"G1" help:"The gateway's name."`
	Gateways          map[string]string `json:"gateways,omitempty" env:"CELLD_GATEWAYS" placeholder:"NAME=ADDR;..." help:"Every gateway by name, with the inner address under which the others reach it."`
	HTTP              string            `name:"http" json:"http,omitempty" env:"CELLD_HTTP" default:"127.0.0.1:8080" placeholder:"ADDR" help:"host:port of the public API."`
	HTTPCert          string            `name:"http-cert" json:"httpCert,omitempty" env:"CELLD_HTTP_CERT" placeholder:"FILE" help:"Certificate of the public API; without one it speaks plain HTTP and belongs behind a proxy that ends TLS."`
	HTTPKey           string            `name:"http-key" json:"httpKey,omitempty" env:"CELLD_HTTP_KEY" placeholder:"FILE" help:"Its private key."`
	Admin             string            `json:"admin,omitempty" env:"CELLD_ADMIN_LISTEN" default:"127.0.0.1:8081" placeholder:"ADDR" help:"host:port of the operator API and of /metrics."`
	OperatorTokenFile string            `json:"operatorTokenFile,omitempty" env:"CELLD_OPERATOR_TOKEN_FILE" placeholder:"FILE" help:"File with the operators' token; nobody else may read it."`
	StaleReads        bool              `json:"staleReads,omitempty" env:"CELLD_STALE_READS" help:"While this gateway has lost touch with the directory, answer reads that ask to be stale by the rights that it last knew: also to a member who was removed meanwhile."`
	RequestLog        int               `json:"requestLog" env:"CELLD_REQUEST_LOG" default:"100" placeholder:"N" help:"How many requests a second are logged that went well; the next line says how many were left out. Up to 100 a second that were refused are logged beside them, failed and slow ones always. 0 for no others, a million for all."`
	SlowRequest       Duration          `json:"slowRequest,omitempty" env:"CELLD_SLOW_REQUEST" default:"500ms" placeholder:"SPAN" help:"A request that went well and took this long is logged in any case."`
	ReadyFile         string            `json:"readyFile,omitempty" env:"CELLD_READY_FILE" placeholder:"FILE" help:"/readyz does not answer 200 before this file exists."`
	Common            `embed:""`
}
