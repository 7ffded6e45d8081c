"""The prototype page: names are changed and undone, and a hostile name stays text."""

from pathlib import Path

from browser.window import Window
from panther.explain.names import Naming, as_namings

HOSTILE = "<script>document.title = 'owned'</script><img src=x onerror=alert(1)>"


def test_a_prototype_is_renamed_grouped_and_taken_back(window: Window, browsed_cohort: Path):
    window.page.goto(f"{window.address}#page=prototypes")
    page, names = window.page, browsed_cohort / "names.yaml"
    page.get_by_role("link", name="C1", exact=True).click()
    window.wait_for_state(page="prototypes", prototype="1")
    page.get_by_label("Name", exact=True).fill(HOSTILE)
    page.get_by_label("Name", exact=True).press("Enter")
    page.get_by_text("Saved in names.yaml.").wait_for()
    assert page.get_by_role("heading", level=1).inner_text() == f"C1 {HOSTILE}"
    assert as_namings(names, 3)[1] == Naming(HOSTILE)
    page.get_by_label("Group").fill("nests")
    page.get_by_label("Group").press("Enter")
    page.get_by_role("heading", name=f"C1 {HOSTILE} (nests)", level=1).wait_for()
    page.get_by_role("button", name="Undo").click()
    page.get_by_role("heading", name=f"C1 {HOSTILE}", exact=True, level=1).wait_for()
    page.get_by_role("link", name="All prototypes").click()
    name = page.get_by_label("Name of C1")
    name.wait_for()
    assert name.input_value() == HOSTILE
    page.get_by_role("button", name="Undo").click()
    page.wait_for_function("() => document.querySelector('[data-card=n1]')?.value === 'tumour nest'")
    assert names.read_text() == "C0: stroma\nC1: tumour nest\n"
    assert page.title() != "owned"


def test_a_note_keeps_its_lines(window: Window, browsed_cohort: Path):
    page, names = window.page, browsed_cohort / "names.yaml"
    page.goto(f"{window.address}#page=prototypes&prototype=0")
    note = page.get_by_label("Note")
    note.fill("loose")
    note.press("End")
    note.press("Enter")
    note.type("ask K.")
    note.press("Control+Enter")
    page.get_by_text("Saved in names.yaml.").wait_for()
    assert as_namings(names, 3)[0] == Naming("stroma", "loose\nask K.")
    page.reload()
    page.wait_for_function("() => document.querySelector('textarea')?.value === 'loose\\nask K.'")
    page.get_by_role("button", name="Undo").click()
    page.wait_for_function("() => document.querySelector('textarea').value === ''")
    assert names.read_text() == "C0: stroma\nC1: tumour nest\n"


def test_an_answer_that_is_overtaken_by_a_change_is_not_taken(window: Window, browsed_cohort: Path):
    """Pages load the names again when their window gets the focus; a change made meanwhile must not be lost."""
    page, late = window.page, []

    def hold(route):
        if route.request.method == "GET":
            late.append((route, route.fetch()))  # as the names are now
        else:
            route.continue_()

    page.goto(f"{window.address}#page=prototypes&prototype=0")
    page.get_by_role("heading", name="C0 stroma", level=1).wait_for()
    page.route("**/names*", hold)
    page.evaluate("dispatchEvent(new Event('focus'))")
    while not late:
        page.wait_for_timeout(10)
    page.get_by_label("Name", exact=True).fill("muscle")
    page.get_by_label("Name", exact=True).press("Enter")
    page.get_by_role("heading", name="C0 muscle", level=1).wait_for()
    (route, response), *_ = late
    with page.expect_event("requestfinished"):
        route.fulfill(response=response)
    page.unroute("**/names*")
    assert page.get_by_role("heading", level=1).inner_text() == "C0 muscle"
    page.get_by_role("button", name="Undo").click()
    page.get_by_role("heading", name="C0 stroma", level=1).wait_for()
    assert (browsed_cohort / "names.yaml").read_text() == "C0: stroma\nC1: tumour nest\n"


def test_patches_groups_and_neighbours_of_a_prototype_are_shown(window: Window):
    window.open("page=prototypes&prototype=0&slide=S1&column=subtype")
    page = window.page
    page.locator(".strip img").first.wait_for()
    assert page.locator(".exemplars h3").all_inner_texts()[0].startswith("Typical")
    page.locator(".chart .main-svg").first.wait_for()
    page.get_by_role("link", name="C1 tumour nest", exact=True).last.wait_for()  # among the neighbours
    page.get_by_label("Column").select_option("os_censorship")
    window.wait_for_state(column="os_censorship")
    page.locator(".strip a").first.click()
    page.get_by_role("dialog").get_by_role("link", name="Open the slide").click()
    window.wait_for_state(page="slide")


def test_prototypes_are_named_one_after_the_other_and_merged(window: Window, browsed_cohort: Path):
    window.page.goto(f"{window.address}#page=prototypes")
    page = window.page
    page.locator(".typical img").first.wait_for()
    assert page.locator(".typical a").count() == 27
    page.get_by_role("button", name="1 unnamed").wait_for()
    page.keyboard.press("n")
    page.keyboard.type("gland")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="unnamed").wait_for(state="detached")
    assert as_namings(browsed_cohort / "names.yaml", 3)[2] == Naming("gland")
    for c in (0, 1):
        page.locator(f"[data-card=t{c}]").check()
    page.get_by_label("One name").fill("tumour")
    page.get_by_role("button", name="Merge").click()
    page.wait_for_function(
        "() => document.querySelector('[data-card=n0]')?.value === 'tumour' && document.querySelector('[data-card=n1]').value === 'tumour'"
    )
    colours = page.eval_on_selector_all(".card", "cards => cards.map((card) => card.style.borderTopColor)")
    assert colours[0] == colours[1] != colours[2]
    for c, name in ((1, "tumour nest"), (0, "stroma"), (2, "")):
        page.get_by_role("button", name="Undo").click()
        window.until(lambda c=c, name=name: page.locator(f"[data-card=n{c}]").input_value() == name)
    page.get_by_role("button", name="1 unnamed").wait_for()
