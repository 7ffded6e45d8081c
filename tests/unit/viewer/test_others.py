"""A viewer for people at other machines: which addresses they are given, and that those are answered."""

import socket
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from panther.viewer import address
from panther.viewer.address import ListenConfig, is_everywhere, machine_addresses
from panther.viewer.serve import Viewer
from viewer.asking import Browser

pytestmark = pytest.mark.usefixtures("nowhere_in_particular")
EVERYWHERE = ("0.0.0.0", "::", "[::]")


def card(address, family=socket.AF_INET):
    return SimpleNamespace(family=family, address=address)


@pytest.fixture
def network(monkeypatch):
    """A machine with a name that leads to itself alone, as Debian's does, and two networks, one of them down."""
    cards = {
        "lo": [card("127.0.0.1"), card("::1", socket.AF_INET6)],
        "eth0": [
            card("fe80::1%eth0", socket.AF_INET6),
            card("fd00::2", socket.AF_INET6),
            card("10.1.2.3"),
            card("02:fc:00:00:00:01", family=-1),
        ],
        "eth1": [card("10.9.9.9")],
    }
    stats = {name: SimpleNamespace(isup=name != "eth1") for name in cards}
    monkeypatch.setattr(address.psutil, "net_if_addrs", lambda: cards)
    monkeypatch.setattr(address.psutil, "net_if_stats", lambda: stats)
    monkeypatch.setattr(address.socket, "gethostname", lambda: "Node7")
    monkeypatch.setattr(address.socket, "getfqdn", lambda: "node7.lab.org")


def test_every_spelling_of_all_addresses_is_known():
    assert all(map(is_everywhere, (*EVERYWHERE, "0:0:0:0:0:0:0:0")))
    assert not any(map(is_everywhere, ("127.0.0.1", "::1", "10.1.2.3", "localhost", "lab")))


def test_others_are_given_numbers_and_name_of_this_machine(network):
    assert ListenConfig("0.0.0.0").others(80) == ["http://10.1.2.3:80", "http://node7.lab.org:80"]
    assert ListenConfig("::").others(80) == ["http://10.1.2.3:80", "http://[fd00::2]:80", "http://node7.lab.org:80"]
    assert ListenConfig().others(80) == ListenConfig("10.1.2.3").others(80) == []


def test_where_a_socket_hears_one_kind_of_address_the_other_is_not_told(network, monkeypatch):
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    assert ListenConfig("::").others(80)[0] == "http://[fd00::2]:80"


def test_a_machine_without_a_name_or_a_network_says_so_by_saying_nothing(network, monkeypatch):
    monkeypatch.setattr(address.socket, "gethostname", lambda: "localhost")
    monkeypatch.setattr(address.socket, "getfqdn", lambda: "localhost.localdomain")
    monkeypatch.setattr(address.psutil, "net_if_addrs", dict)
    assert ListenConfig("0.0.0.0").others(80) == []


@pytest.mark.parametrize("host", EVERYWHERE)
def test_whoever_asks_under_a_number_or_an_own_name_is_let_in_and_other_names_are_not(bench, host):
    with Viewer(bench, ListenConfig(host)) as viewer:
        own = urlsplit(viewer.address).netloc
        for asked in ("10.20.30.40", "[2001:db8::7]", socket.gethostname(), "localhost"):
            assert Browser().get(viewer.address, Host=f"{asked}:{viewer.port}").status == 200
        for asked in ("evil.example", "10.20.30.40.evil.example", "2130706433", "1.2.3", ""):
            assert Browser().get(viewer.address, Host=asked).status == 403
        assert Browser().get(f"http://{own}/api/contents", Host="10.20.30.40").status == 403  # a number is no token


def test_a_viewer_for_this_machine_alone_is_not_asked_under_another_number(viewer):
    assert Browser().get(viewer.address, Host="10.20.30.40").status == 403


@pytest.mark.parametrize("host", EVERYWHERE)
def test_the_addresses_that_are_told_answer(bench, host):
    numbers = machine_addresses() if ":" in host else machine_addresses((socket.AF_INET,))
    if not numbers:
        pytest.skip("this machine has no network")
    with Viewer(bench, ListenConfig(host)) as viewer:
        told = {urlsplit(one).hostname: one for one in viewer.others}
        for number in numbers:
            browser = Browser()
            assert browser.get(told[number]).status == 200
            assert browser.get(f"{told[number].partition('?')[0]}api/contents").status == 200
            changed = browser.post(
                f"{told[number].partition('?')[0]}api/names", {"version": "", "prototype": 9, "name": "x"}
            )
            assert "no prototype C9" in changed.json["error"]
