package platform

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
)

// port is an address held for one member while the platform runs. The socket is
// bound and never listens, so that the member, which may be a child process that
// dies and returns, finds its address still free: Linux lets another socket with
// SO_REUSEADDR bind and listen there, and gives the port to nobody who asks for
// any free one.
type port struct {
	addr string
	held *os.File
}

// reserve holds addr; port 0 means any free one.
func reserve(addr string) (*port, error) {
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
	return &port{addr: net.JoinHostPort(host, strconv.FormatUint(number, 10)), held: held}, nil
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

// listen opens the listener for which the port was held.
func (p *port) listen() (net.Listener, error) { return net.Listen("tcp", p.addr) }

// tryListen reports whether the member will be able to listen: an address that
// another process holds but does not listen on yet can be bound all the same.
func (p *port) tryListen() error {
	l, err := p.listen()
	if err != nil {
		return err
	}
	return l.Close()
}

func (p *port) release() error { return p.held.Close() }
