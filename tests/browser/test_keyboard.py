"""Everything without a mouse."""


def test_the_canvas_is_moved_by_keys(window):
    window.open("slide=S0")
    window.page.locator(".deepzoom").focus()
    fitted = window.views()[0]
    window.page.keyboard.press("+")
    window.page.keyboard.press("ArrowRight")
    window.page.keyboard.press("ArrowDown")
    window.settle()
    x, y, zoom = window.views()[0]
    assert (x > fitted[0], y > fitted[1], zoom > fitted[2]) == (True, True, True)
    window.page.keyboard.press("1")
    window.settle()
    assert window.views()[0][2] == 1
    window.page.keyboard.press("0")
    window.settle()
    assert window.views()[0] == fitted


def test_slides_are_found_and_stepped_through(window):
    window.open("slide=S0")
    window.page.keyboard.press("]")
    window.wait_for_state(slide="S1")
    window.page.keyboard.press("/")
    window.page.keyboard.type("s3")
    window.page.keyboard.press("Enter")
    window.wait_for_state(slide="S3")
    window.settle()


def test_patches_are_chosen_by_keys_without_a_focus(window):
    window.open("slide=S0")
    window.page.keyboard.press("Enter")
    window.page.wait_for_url(lambda url: "patch=" in url)
    chosen = window.state()["patch"]
    window.page.keyboard.press("Shift+ArrowRight")
    window.page.wait_for_url(lambda url: "patch=" in url and f"patch={chosen}" not in url.split("&"))
    assert window.state()["patch"] != chosen
    window.page.keyboard.press("Escape")
    window.page.locator(".patch").wait_for(state="hidden")


def test_layers_are_hidden_and_the_keys_are_listed(window):
    window.open("slide=S0")
    window.page.keyboard.press("h")
    window.wait_for_state(layers="none")
    window.page.keyboard.press("h")
    window.wait_for_state(layers="prototypes")
    window.page.keyboard.press("?")
    assert "1:1" in window.page.get_by_role("dialog").inner_text()
    window.page.keyboard.press("Escape")
    window.page.get_by_role("dialog").wait_for(state="hidden")
    window.settle()


def test_every_control_is_reached_by_tab_and_has_a_name(window):
    """What has the focus is seen and named, from the first link to the last prototype."""
    window.open("slide=S0")
    names = []
    for _ in range(60):
        window.page.keyboard.press("Tab")
        name = window.page.evaluate(
            """() => {
                const node = document.activeElement;
                if (node === document.body) return null;
                return node.getAttribute("aria-label") || node.closest("label")?.innerText || node.innerText || node.title;
            }"""
        )
        if name is None:
            break
        assert name.strip()
        names.append(name)
    text = " | ".join(names)
    controls = (
        "Find a slide",
        "Sort slides by",
        "Show slides",
        "Slides",
        "Fit the slide",
        "PNG",
        "Arrow keys move",
        "Prototypes",
        "Opacity of Prototypes",
    )
    for control in (*controls, "C0 stroma"):
        assert control in text
