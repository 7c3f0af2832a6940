"""The schema of a graph: the `.pg` language, the catalog it means, its canonical IR, and plans from one to the next.

This room is pure. It reads no file and knows no dataset; `reference.format.schema_files` turns its results into the
texts at the root of a graph. A text becomes declarations (`parser`), which are checked and become a catalog
(`compiler`, `types`), which has one canonical JSON form (`ir`). Two catalogs make a plan (`plan`).
"""

from reference.schema.compiler import compile_schema
from reference.schema.errors import SchemaError
from reference.schema.ir import catalog_from_ir, ir_hash, parse_ir, schema_ir
from reference.schema.plan import MigrationPlan, Step, TableChanges, plan_migration, table_changes
from reference.schema.types import Catalog, EdgeType, NodeType, Property, PropertyType

__all__ = [
    "Catalog",
    "EdgeType",
    "MigrationPlan",
    "NodeType",
    "Property",
    "PropertyType",
    "SchemaError",
    "Step",
    "TableChanges",
    "catalog_from_ir",
    "compile_schema",
    "ir_hash",
    "parse_ir",
    "plan_migration",
    "schema_ir",
    "table_changes",
]
