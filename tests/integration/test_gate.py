"""What is asked of requests to a host: https, a client certificate, whatever their route."""

import pytest

from tests.certificates import Authority
from tests.integration.gateway_stage import Stage, read_answer
from torchgate.schema.front import FrontConfig, HostConfig

CA = Authority("Clients")
HOSTS = (
    HostConfig(host="safe.test", redirect_https=True),
    HostConfig(host="*.wide.test", redirect_https=True),
    HostConfig(host="plain.wide.test"),
    HostConfig(host="mutual.test", client_ca=CA.pem),
    HostConfig(host="[2001:db8::1]", client_ca=CA.pem),
)


def stage(tmp_path, **config):
    return Stage(tmp_path, front=FrontConfig(hosts=HOSTS), **config)


def ask(sock, host, *lines, method="GET", target="/"):
    fields = "".join(f"{line}\r\n" for line in (f"Host: {host}", *lines))
    sock.sendall(f"{method} {target} HTTP/1.1\r\n{fields}\r\n".encode())
    return read_answer(sock)


@pytest.mark.parametrize(
    ("host", "location"),
    [
        ("safe.test", b"https://safe.test/a?b=%20c"),
        ("SAFE.test:8080", b"https://SAFE.test/a?b=%20c"),
        ("x.wide.test", b"https://x.wide.test/a?b=%20c"),
        ("x.y.wide.test", b"https://x.y.wide.test/a?b=%20c"),
    ],
)
def test_plain_requests_are_sent_to_https(tmp_path, host, location):
    with stage(tmp_path) as gate:
        answer = ask(gate.connect(), host, target="/a?b=%20c")
        assert (answer.status, answer.fields[b"location"]) == (308, location)


def test_any_method_and_body_is_redirected_and_other_hosts_are_not(tmp_path):
    with stage(tmp_path) as gate:
        sock = gate.connect()
        for _ in range(2):
            assert ask(sock, "safe.test", "Content-Length: 0", method="PROPFIND").status == 308
            assert ask(sock, "other.test").status == 200
            assert ask(sock, "plain.wide.test").status == 200
            assert ask(sock, "wide.test").status == 200  # a wildcard is for what is below it
        sock.sendall(b"POST /echo HTTP/1.1\r\nHost: safe.test\r\nContent-Length: 5\r\n\r\n12345")
        assert read_answer(sock).status == 308
        assert ask(sock, "other.test").status == 200


def test_a_trusted_proxy_that_speaks_https_to_clients_is_not_sent_there_again(tmp_path):
    https = "X-Forwarded-Proto: https"
    with stage(tmp_path, trusted_proxies=("127.0.0.0/8",)) as gate:
        sock = gate.connect()
        assert ask(sock, "safe.test", "X-Forwarded-For: 192.0.2.1", https).status == 200
        assert ask(sock, "safe.test", "X-Forwarded-For: 192.0.2.1").status == 308
        assert ask(sock, "safe.test", https).status == 200
    with stage(tmp_path) as gate:
        assert ask(gate.connect(), "safe.test", https).status == 308  # anybody can say that


def test_a_host_that_demands_a_certificate_is_not_served_without_tls(tmp_path):
    with stage(tmp_path) as gate:
        answer = ask(gate.connect(), "mutual.test")
        assert (answer.status, answer.json["cause"]) == (403, "client-certificate")


def test_demands_on_an_ipv6_address_hold(tmp_path):
    with stage(tmp_path) as gate:
        for host in ("[2001:db8::1]", "[2001:DB8::1]:8080"):
            assert ask(gate.connect(), host).status == 403
