import pytest

pytest.register_assert_rewrite(
    "tests.serving.contract", "tests.serving.contract_live", "tests.serving.contract_replicas"
)
