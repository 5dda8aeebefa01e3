"""Attacks on the network and on sockets of the machine."""

from __future__ import annotations

import pytest

from tests.sandbox.scene import Scene

REACHING = {
    "tcp": "socket.create_connection(('127.0.0.1', facts['tcp'])).send(b'x')",
    "udp": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', facts['udp']))",
    "unix": "x = socket.socket(socket.AF_UNIX); x.connect(home + '/socket'); x.send(b'x')",
    "abstract": "x = socket.socket(socket.AF_UNIX); x.connect('\\0' + facts['abstract']); x.send(b'x')",
    "datagrams": "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', home + '/datagrams')",
}


@pytest.mark.parametrize("kind", REACHING)
def test_a_command_cannot_reach_a_socket(scene: Scene, level: str, kind: str) -> None:
    result = scene.run(REACHING[kind], level)
    assert scene.reached() == []
    assert kind == "udp" or result.exit_code != 0


@pytest.mark.parametrize("kind", REACHING)
def test_without_the_sandbox_it_reaches_the_socket(scene: Scene, kind: str) -> None:
    scene.run(REACHING[kind], "none")
    assert scene.reached() == [kind]


def test_a_datagram_socket_of_a_pair_reaches_no_other(scene: Scene, level: str) -> None:
    """It needs no `socket` call, and can send to any address."""
    program = "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', home + '/datagrams')"
    scene.run(program, level)
    assert scene.reached() == []
    scene.run(program, "none")
    assert scene.reached() == ["datagrams"]


OPENING = {
    "a packet socket": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x300)",
    "a raw socket": "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)",
    "a socket of the machine's host": "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)",
    "the kernel's cryptography": "socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)",
    "the kernel's audit": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9)",
    "the kernel's firewall": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)",
    "a key socket": "socket.socket(15, socket.SOCK_RAW, 2)",
    "Bluetooth": "socket.socket(31, socket.SOCK_RAW, 1)",
}


@pytest.mark.parametrize("attack", OPENING)
def test_a_command_cannot_open(scene: Scene, level: str, attack: str) -> None:
    result = scene.run(OPENING[attack] + "; print('BREACH')", level)
    assert "PermissionError" in result.output


def test_without_the_sandbox_most_of_these_open(scene: Scene) -> None:
    opened = {attack for attack in OPENING if scene.run(OPENING[attack] + "; print('BREACH')", "none").breached}
    expected = {"the kernel's audit", "the kernel's firewall"}
    if scene.user == "root":
        expected |= {"a packet socket", "a raw socket"}
    assert opened >= expected


def test_no_interface_but_loopback_is_there_and_no_route(scene: Scene) -> None:
    program = """
        names = [name for _, name in socket.if_nameindex()]
        try:
            socket.create_connection(("192.0.2.1", 80), 5)
        except OSError as error:
            print(names, error.strerror)
    """
    assert scene.run(program, "full").output == "['lo'] Network is unreachable\n"


def test_a_server_of_a_command_is_for_itself(scene: Scene) -> None:
    """Programs that talk to themselves work, as many tests do."""
    program = """
        server = socket.create_server(("127.0.0.1", 0))
        client = socket.create_connection(server.getsockname())
        server.accept()[0].send(b"x")
        print(client.recv(1))
    """
    assert scene.run(program, "full").output == "b'x'\n"


def test_the_proxy_is_the_only_way_out(scene: Scene, level: str) -> None:
    program = """
        import re
        print(os.environ.get("HTTPS_PROXY"))
        proxy = socket.create_connection(("127.0.0.1", 3128), 20)
        proxy.send(b"CONNECT example.org:443 HTTP/1.1\\r\\n\\r\\n")
        print(proxy.recv(100))
    """
    result = scene.run(program, level, network=True)
    if level == "full":
        assert result.output == "http://127.0.0.1:3128\nb'HTTP/1.1 403 of the stand-in\\r\\n\\r\\n'\n"
    else:
        assert "None\n" in result.output
        assert "PermissionError" in result.output
