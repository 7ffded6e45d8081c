"""A viewer for other machines: its addresses, and that they are answered."""

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
            *(card(a, socket.AF_INET6) for a in ("fe80::1%eth0", "fd00::2")),
            card("10.1.2.3"),
            card("02:fc:00:00:00:01", -1),
        ],
        "eth1": [card("10.9.9.9")],
    }
    stats = {name: SimpleNamespace(isup=name != "eth1") for name in cards}
    monkeypatch.setattr(address.psutil, "net_if_addrs", lambda: cards)
    monkeypatch.setattr(address.psutil, "net_if_stats", lambda: stats)
    monkeypatch.setattr(address.socket, "gethostname", lambda: "Node7")
    monkeypatch.setattr(address.socket, "getfqdn", lambda: "node7.lab.org")


def test_every_spelling_of_all_addresses_is_recognised():
    assert all(map(is_everywhere, (*EVERYWHERE, "0:0:0:0:0:0:0:0")))
    assert not any(map(is_everywhere, ("127.0.0.1", "::1", "10.1.2.3", "localhost", "lab")))


def test_the_addresses_for_other_machines_are_numbers_and_the_name_of_this_one(network):
    assert ListenConfig("0.0.0.0").others(80) == ["http://10.1.2.3:80", "http://node7.lab.org:80"]
    assert ListenConfig("::").others(80) == ["http://10.1.2.3:80", "http://[fd00::2]:80", "http://node7.lab.org:80"]
    assert ListenConfig().others(80) == ListenConfig("10.1.2.3").others(80) == []


def test_where_a_socket_hears_one_kind_of_address_the_other_is_not_listed(network, monkeypatch):
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    assert ListenConfig("::").others(80)[0] == "http://[fd00::2]:80"


def test_a_machine_without_a_name_and_a_network_has_no_address_for_others(network, monkeypatch):
    monkeypatch.setattr(address.socket, "gethostname", lambda: "localhost")
    monkeypatch.setattr(address.socket, "getfqdn", lambda: "localhost.localdomain")
    monkeypatch.setattr(address.psutil, "net_if_addrs", dict)
    assert ListenConfig("0.0.0.0").others(80) == []


@pytest.mark.parametrize("host", EVERYWHERE)
def test_requests_may_use_any_number_and_the_names_of_the_machine_but_no_other_name(bench, host):
    with Viewer(bench, ListenConfig(host)) as viewer:
        base = viewer.address.partition("?")[0]
        for name in ("10.20.30.40", "[2001:db8::7]", socket.gethostname(), "localhost"):
            assert Browser().get(viewer.address, Host=f"{name}:{viewer.port}").status == 200
        for name in ("evil.example", "10.20.30.40.evil.example", "2130706433", "1.2.3", ""):
            assert Browser().get(viewer.address, Host=name).status == 403
        assert Browser().get(f"{base}api/contents", Host="10.20.30.40").status == 403  # a number is no token


def test_a_viewer_for_this_machine_refuses_other_numbers(viewer):
    assert Browser().get(viewer.address, Host="10.20.30.40").status == 403


@pytest.mark.parametrize("host", EVERYWHERE)
def test_the_listed_addresses_answer(bench, host):
    numbers = machine_addresses() if ":" in host else machine_addresses((socket.AF_INET,))
    if not numbers:
        pytest.skip("this machine has no network")
    with Viewer(bench, ListenConfig(host)) as viewer:
        listed = {urlsplit(address).hostname: address for address in viewer.others}
        for number in numbers:
            browser, base = Browser(), listed[number].partition("?")[0]
            assert browser.get(listed[number]).status == 200
            assert browser.get(f"{base}api/contents").status == 200
            changed = browser.post(f"{base}api/names", {"version": "", "prototype": 9, "name": "x"})
            assert "C9" in changed.json["error"]
