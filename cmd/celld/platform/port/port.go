// Package port holds addresses for processes that come and go. A held address is
// one that its owner can listen on again and again, and nobody else gets by
// asking for any free one.
//
// It keeps no state of its own and starts no goroutines.
package port

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
)

// Port is a held address. Its socket is bound and never listens: Linux lets
// another socket with SO_REUSEADDR, in this process or in a child, bind and listen
// there, and gives the port to nobody who asks for any free one. While nobody
// listens a connection is refused at once.
type Port struct {
	addr string
	held *os.File
}

// Addr is the address as host:port.
func (p *Port) Addr() string { return p.addr }

// Reserve holds addr; port 0 means any free one.
func Reserve(addr string) (*Port, error) {
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("%q is not an address of the form host:port: %w", addr, err)
	}
	number, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("%q: the port is a number from 0 to 65535", addr)
	}
	ip, err := resolve(host)
	if err != nil {
		return nil, err
	}
	family, sa := sockaddr(ip, int(number))
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	syscall.CloseOnExec(fd)
	held := os.NewFile(uintptr(fd), "port "+addr)
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return nil, errors.Join(os.NewSyscallError("setsockopt", err), held.Close())
	}
	if err := syscall.Bind(fd, sa); err != nil {
		return nil, errors.Join(os.NewSyscallError("bind", err), held.Close())
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("getsockname", err), held.Close())
	}
	switch b := bound.(type) {
	case *syscall.SockaddrInet4:
		number = uint64(b.Port)
	case *syscall.SockaddrInet6:
		number = uint64(b.Port)
	}
	return &Port{addr: net.JoinHostPort(host, strconv.FormatUint(number, 10)), held: held}, nil
}

func resolve(host string) (netip.Addr, error) {
	if host == "" {
		return netip.IPv6Unspecified(), nil
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip, nil
	}
	found, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return netip.Addr{}, err
	}
	return found.AddrPort().Addr(), nil
}

func sockaddr(ip netip.Addr, number int) (int, syscall.Sockaddr) {
	if ip = ip.Unmap(); ip.Is4() {
		return syscall.AF_INET, &syscall.SockaddrInet4{Port: number, Addr: ip.As4()}
	}
	return syscall.AF_INET6, &syscall.SockaddrInet6{Port: number, Addr: ip.As16()}
}

// Listen opens a listener at the held address.
func (p *Port) Listen() (net.Listener, error) { return net.Listen("tcp", p.addr) }

// TryListen reports whether the owner will be able to listen: an address where
// somebody else holds a bound socket without listening can be held all the same.
func (p *Port) TryListen() error {
	l, err := p.Listen()
	if err != nil {
		return err
	}
	return l.Close()
}

// Release gives the address back.
func (p *Port) Release() error { return p.held.Close() }
