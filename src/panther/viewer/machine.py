"""Under which names and addresses others reach this machine."""

import socket
from contextlib import suppress
from ipaddress import ip_address

import psutil

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def is_address(name: str) -> bool:
    """Whether a host is given by its number, not by a name."""
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def is_everywhere(host: str) -> bool:
    """Whether a server that listens there is reached under every address of the machine: 0.0.0.0, :: and other spellings of them."""
    return is_address(host) and ip_address(host.strip("[]")).is_unspecified


def own_names() -> list[str]:
    """Names of this machine: its own, the whole one, and the short one."""
    name, whole = socket.gethostname(), socket.getfqdn()
    return list(dict.fromkeys(found.lower() for found in (name, whole, name.partition(".")[0]) if found))


def name_for_others() -> str | None:
    """The name that others may know this machine by, the whole one where it has one; None where it has none of its own."""
    name, whole = socket.gethostname().lower(), socket.getfqdn().lower()
    best = whole if whole.startswith(f"{name}.") else name
    return None if not best or best.startswith("localhost") else best


def own_addresses(families: tuple[int, ...] = (socket.AF_INET, socket.AF_INET6)) -> list[str]:
    """Addresses that others may know this machine by, in the order of the families: of networks that are up, none of which leads only back."""
    with suppress(OSError):
        up = {name for name, stats in psutil.net_if_stats().items() if stats.isup}
        cards = [card for name, found in psutil.net_if_addrs().items() if name in up for card in found]
        given = [card.address for family in families for card in cards if card.family == family]
        return [address for address in dict.fromkeys(given) if _leads_here(address)]
    return []


def _leads_here(address: str) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return not (found.is_loopback or found.is_link_local or found.is_unspecified)
