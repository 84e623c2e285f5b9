"""Marks the wheel as made for one kind of machine, and has it install the program."""

import os

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):
    def initialize(self, version, build_data):
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{os.environ['SNUG_WHEEL_PLATFORM']}"
        build_data["shared_scripts"] = {os.path.join(self.root, "bin", "snug"): "snug"}
