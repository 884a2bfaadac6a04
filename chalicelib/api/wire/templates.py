"""Templates on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.usecases.operator.templates import Parameter, Template

if TYPE_CHECKING:
    from chalicelib import contract


def template_json(template: Template) -> contract.Template:
    return {
        "type": template.type,
        "name": template.name,
        "title": template.title,
        "description": template.description,
        "parameters": [_parameter(each) for each in template.parameters],
        "configuration": template.configuration.model_dump(),
    }


def _parameter(parameter: Parameter) -> contract.TemplateParameter:
    if parameter.type != "env":
        return {"type": parameter.type}
    return {"type": parameter.type, "title": parameter.title, "name": parameter.name, "value": parameter.value}
