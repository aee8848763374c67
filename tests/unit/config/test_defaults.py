"""Defaults as help and the reference show them: what is shown is read as the default."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headgate.config import gateway, service
from headgate.config.sources import gather_values

if TYPE_CHECKING:
    from headgate.config import Setting

SHOWN = [one for one in (*service.SETTINGS, *gateway.SETTINGS) if one.default_text and one.flag]


@pytest.mark.parametrize("setting", SHOWN, ids=lambda setting: setting.name)
def test_the_default_that_is_shown_is_the_default(setting: Setting) -> None:
    flags = {setting.name: setting.default_text}
    found = gather_values((setting,), flags=flags, variables={})
    assert found.values == {setting.name: setting.default}
