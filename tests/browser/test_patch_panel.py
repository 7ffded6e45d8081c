"""One patch: chosen by a click, by a key or by a link."""

NEST = (450, 510)  # the middle of a patch of C1


def test_a_patch_is_chosen_by_a_click_and_leads_to_others(window):
    window.open("slide=S0")
    window.page.mouse.click(*window.spot(*NEST))
    panel = window.page.locator(".patch")
    panel.locator(".facts .legend li").first.wait_for()
    assert "C1 tumour nest" in panel.locator(".facts").inner_text()
    picture = panel.locator(".portrait img")
    picture.evaluate("image => image.decode()")
    others = panel.locator("section").first.locator(".similar a")
    others.first.wait_for()
    chosen = window.state()["patch"]
    others.first.click()
    window.page.wait_for_function(
        "before => !location.hash.includes(`patch=${before}&`) && !location.hash.endsWith(`patch=${before}`)",
        arg=chosen,
    )
    window.settle()
    window.page.keyboard.press("Escape")
    panel.wait_for(state="hidden")


def test_a_link_to_a_patch_goes_there_and_back_returns(window):
    window.open("slide=S0")
    window.page.evaluate("location.hash = '#page=slide&slide=S2&patch=7'")
    window.page.wait_for_selector("h1:text-is('S2')")
    window.page.locator(".patch h2:text-is('Patch 7')").wait_for()
    window.settle()
    window.page.go_back()
    window.page.wait_for_selector("h1:text-is('S0')")
    window.page.locator(".patch").wait_for(state="hidden")
    window.settle()


def test_layers_and_patch_take_turns_on_a_small_screen(window):
    window.open("slide=S0&patch=7")
    window.page.locator(".patch").get_by_role("button", name="Layers").click()
    window.page.locator(".side h2:text-is('Layers')").wait_for()
    window.page.locator(".side").get_by_role("button", name="Patch 7").click()
    window.page.locator(".patch h2:text-is('Patch 7')").wait_for()
    assert window.state()["patch"] == "7"
