"""Pages and pictures that people look at: one HTML file without outside references.

page      the answer in one sentence, then pictures, tables and assumptions
pictures  matplotlib drawings as SVG text
"""
